"""A digest of everything in a request that may kill an engine, so that a repetition is recognized without its body. Pure.

For a request with a grammar or a schema, it covers everything but its texts: if an engine dies of such a request, the
grammar is usually the reason. For any other request, it also covers the texts. Fields without an effect on the engine
are left out.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from hashlib import blake2b
from typing import Final

import msgspec

from protocol.models.sampling import TOKEN_LIMIT_FIELDS
from protocol.requests.grammar_limits import GRAMMAR_FIELDS
from protocol.requests.text_limits import TEXT_FIELDS, RequestFields

_MAKE_NO_DIFFERENCE: Final = frozenset(
    {"model", "stream", "stream_options", "user", "metadata", "seed", *TOKEN_LIMIT_FIELDS}
)
_GRAMMARS: Final = frozenset(GRAMMAR_FIELDS) - {"tools"}
"""Tools alone say little: an agent sends the same ones in all its requests."""
_SCHEMA: Final = b"schema"
_ENDS_BYTES: Final = 8 * 1024
"""Of a longer text, such as an image, its ends and its length are enough."""
_in_order: Final = msgspec.json.Encoder(order="deterministic").encode


def request_digest(endpoint: str, body: bytes, fields: RequestFields | None) -> str:
    """Return 16 hexadecimal digits. The order of fields does not matter.

    ``fields``: those of the JSON object in ``body``, None if it is not one.
    """
    if fields is None:
        data = _shortened(body)
    else:
        ignored = _MAKE_NO_DIFFERENCE if _GRAMMARS.isdisjoint(fields) else _ignored(fields)
        kept = {name: fields[name] for name in fields.keys() - ignored}
        if len(body) > 2 * _ENDS_BYTES:
            kept = {name: msgspec.Raw(_shortened(raw)) for name, raw in kept.items()}
        data = _in_order(kept)
    return blake2b(endpoint.encode() + data, digest_size=8).hexdigest()


def _ignored(fields: RequestFields) -> AbstractSet[str]:
    """Return the fields that make no difference beside a grammar, or beside fields that have none in them."""
    has_grammar = any(_is_grammar(each, fields[each]) for each in _GRAMMARS & fields.keys())
    return _MAKE_NO_DIFFERENCE | TEXT_FIELDS if has_grammar else _MAKE_NO_DIFFERENCE


def _is_grammar(name: str, raw: msgspec.Raw) -> bool:
    value = bytes(raw)
    return value not in (b"null", b'""') and (name != "response_format" or _SCHEMA in value)


def _shortened(value: bytes | msgspec.Raw) -> bytes:
    view = memoryview(value)
    if view.nbytes <= 2 * _ENDS_BYTES:
        return bytes(view)
    return b"%d %b%b" % (view.nbytes, bytes(view[:_ENDS_BYTES]), bytes(view[-_ENDS_BYTES:]))
