"""Applies the configuration's ``set``, ``drop``, ``request_defaults`` and ``system_prompt`` to requests. Pure.

The worker does this, just before it asks the engine: there, every request of a model passes through, from every API and
for every recipe, with its model resolved. The gateway does not know yet which model a name means, and the supervisor
does not read bodies.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.failures import DECODE_ERRORS
from protocol.models.sampling import TOKEN_LIMIT_FIELDS
from protocol.requests.request_rules import RequestRules

CHATS: Final = frozenset({"chat/completions", "chat/completions/input_tokens", "apply-template"})
"""Endpoints whose requests have ``messages``: a token count of a chat must agree with the chat."""
ENDPOINTS: Final = CHATS | {
    *("completions", "completion", "infill", "embeddings", "embedding", "rerank", "images/generations"),
}
"""Endpoints whose requests are JSON objects with options for the engine. Recordings and images come as forms."""
_SAME_FIELDS: Final = (frozenset({*TOKEN_LIMIT_FIELDS, "max_length"}),)
"""Names of the same option: a rule for one applies to all."""
_GATEWAY_FIELDS: Final = {"images/generations": frozenset({"seed"})}
"""Endpoint → fields that the gateway has chosen and writes into the answer."""

_NULL: Final = msgspec.Raw(b"null")
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])


class _Message(msgspec.Struct):
    role: str = ""


_ROLES: Final = msgspec.json.Decoder(list[_Message])


def apply_request_rules(rules: RequestRules, endpoint: str, body: bytes) -> bytes:
    """Return the body of a request after the rules. A body that is not a JSON object is left to the backend's check."""
    if not rules or endpoint not in ENDPOINTS:
        return body
    try:
        fields = _OBJECT.decode(body)
    except DECODE_ERRORS:
        return body
    _change_fields(rules, fields, _GATEWAY_FIELDS.get(endpoint, frozenset()))
    if rules.system_prompt and endpoint in CHATS and "messages" in fields:
        fields["messages"] = _with_system_message(fields["messages"], rules.system_prompt)
    return msgspec.json.encode(fields)


def _change_fields(rules: RequestRules, fields: dict[str, msgspec.Raw], kept: frozenset[str]) -> None:
    """Drop, set and add fields, except those of the gateway."""
    changed = [name for name in (*rules.drop, *rules.set) if name not in kept]
    for each in (each for name in changed for each in _names_of(name)):
        fields.pop(each, None)
    added = {
        name: value
        for name, value in rules.defaults.items()
        if all(fields.get(each, _NULL) == _NULL for each in _names_of(name))
    }
    for name, value in {**rules.set, **added}.items():
        if name not in kept:
            fields[name] = msgspec.Raw(msgspec.json.encode(value))


def _names_of(name: str) -> frozenset[str]:
    return next((group for group in _SAME_FIELDS if name in group), frozenset({name}))


def _with_system_message(messages: msgspec.Raw, prompt: str) -> msgspec.Raw:
    """Return the messages of a chat with a system message, unless they have one, or are malformed."""
    try:
        roles = {message.role for message in _ROLES.decode(messages)}
    except DECODE_ERRORS:
        return messages
    if not roles or not roles.isdisjoint({"system", "developer"}):
        return messages
    system = msgspec.Raw(msgspec.json.encode({"role": "system", "content": prompt}))
    return msgspec.Raw(msgspec.json.encode([system, *_ITEMS.decode(messages)]))
