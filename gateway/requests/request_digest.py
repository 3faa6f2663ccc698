"""A digest of what an engine may die of in a request, so that a repetition is known without its body. Pure.

A request with a grammar or a schema is known by everything but its texts: an engine that dies of such a request most often dies of
the grammar. Every other one is known by its texts as well. What makes no difference to an engine does not count.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from protocol.models.grammar_limits import GRAMMAR_FIELDS
from protocol.models.request_limits import TEXT_FIELDS
from protocol.models.sampling import TOKEN_LIMIT_FIELDS
from protocol.wire.decoding import DECODE_ERRORS

_MAKE_NO_DIFFERENCE: Final = frozenset(
    {"model", "stream", "stream_options", "user", "metadata", "seed", *TOKEN_LIMIT_FIELDS}
)
_GRAMMARS: Final = frozenset(GRAMMAR_FIELDS) - {"tools"}
"""Tools alone say little: an agent has the same ones in all of its requests."""
_SCHEMA: Final = b"schema"
_ENDS_BYTES: Final = 8 * 1024
"""Of a longer text, such as a picture, its ends and its length are enough."""
_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def request_digest(endpoint: str, body: bytes) -> str:
    """Return 16 hexadecimal digits; the order of fields makes no difference."""
    digest = blake2b(endpoint.encode(), digest_size=8)
    try:
        fields = _object(body)
    except DECODE_ERRORS:
        _add(digest, memoryview(body))
        return digest.hexdigest()
    without_texts = any(_is_grammar(name, fields[name]) for name in _GRAMMARS & fields.keys())
    for name in sorted(fields.keys() - _MAKE_NO_DIFFERENCE):
        if not (without_texts and name in TEXT_FIELDS):
            digest.update(name.encode())
            _add(digest, memoryview(fields[name]))
    return digest.hexdigest()


def _is_grammar(name: str, raw: msgspec.Raw) -> bool:
    value = bytes(raw)
    return value not in (b"null", b'""') and (name != "response_format" or _SCHEMA in value)


def _add(digest: blake2b, value: memoryview) -> None:
    if value.nbytes <= 2 * _ENDS_BYTES:
        digest.update(value)
    else:
        digest.update(b"%d" % value.nbytes)
        digest.update(value[:_ENDS_BYTES])
        digest.update(value[-_ENDS_BYTES:])
