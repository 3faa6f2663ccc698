"""A digest of everything in a request that may kill an engine, so that a repetition is recognized without its body.

Pure.

For a request with a grammar or a schema, the digest covers everything but its texts: if an engine dies of such a
request, the grammar is usually the reason. For any other request, it also covers the texts. Fields without an effect on
the engine are left out.
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
"""Tools alone say little: an agent sends the same ones in all its requests."""
_SCHEMA: Final = b"schema"
_ENDS_BYTES: Final = 8 * 1024
"""Of a longer text, such as an image, its ends and its length are enough."""
_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def request_digest(endpoint: str, body: bytes) -> str:
    """Return 16 hexadecimal digits. The order of fields does not matter."""
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
