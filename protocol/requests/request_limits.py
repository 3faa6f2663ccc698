"""Limits on the fields of a request that an engine reads, iterates over or compiles: their bytes, entries, keys and numbers.

`text_limits` has those of texts, `grammar_limits` those of schemas. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from protocol.failures import DECODE_ERRORS, invalid
from protocol.requests.grammar_limits import GRAMMAR_FIELDS, check_compiled, check_size, decoded
from protocol.requests.text_limits import (
    MAX_KEYS,
    MAX_TEXT_BYTES,
    MAX_TEXT_BYTES_WITH_PIECES,
    PROMPT_FIELDS,
    TEXT_FIELDS,
    Pause,
    RequestFields,
    begins_with_number,
    check_texts,
    first_byte,
    has_many_brackets,
    json_entries,
    json_fields,
    large_values,
    no_pause,
)

MAX_BYTES: Final = {
    "grammar": 64 * 1024,
    "json_schema": 256 * 1024,
    "response_format": 256 * 1024,
    "tools": 1024 * 1024,
    "chat_template_kwargs": 64 * 1024,
    "stop": 64 * 1024,
    "samplers": 4 * 1024,
    "logit_bias": 256 * 1024,
    "dry_sequence_breakers": 1024,
    "grammar_triggers": 64 * 1024,
    "preserved_tokens": 64 * 1024,
    "response_fields": 64 * 1024,
    "lora": 64 * 1024,
}
"""Field → bytes of its JSON."""
_COMPILED: Final = frozenset({*GRAMMAR_FIELDS, "chat_template_kwargs"})
MAX_ENTRIES: Final = {
    "messages": 4_096,
    "prompt": 1_024,
    "input": 2_048,
    "content": 2_048,
    "documents": 2_048,
    "stop": 256,
    "samplers": 64,
    "logit_bias": 4_096,
    "dry_sequence_breakers": 16,
    "grammar_triggers": 256,
    "preserved_tokens": 256,
    "response_fields": 256,
    "lora": 64,
}
"""Field → entries of its list or object; a prompt of token numbers is one."""
MAX_PROBABILITIES: Final = 2**20
"""Of all tokens of a request together: more than any vocabulary has, for one token."""
MAX_NUMBERS: Final = {
    "n_probs": MAX_PROBABILITIES,
    "logprobs": MAX_PROBABILITIES,
    "top_logprobs": MAX_PROBABILITIES,
    "repeat_last_n": 2**20,
    "dry_penalty_last_n": 2**20,
}
"""Field → its largest value.

An engine has memory for this many tokens. How many probabilities each token may have follows from the length of the
answer, which the model's worker knows.
"""
_LIMITED_IF_SHORT: Final = frozenset({*MAX_BYTES, *_COMPILED, *MAX_NUMBERS})
"""Fields that may be beyond a limit even in a short request."""
_LIMITED: Final = _LIMITED_IF_SHORT | MAX_ENTRIES.keys() | TEXT_FIELDS
_SHORT_BYTES: Final = 2 * min(MAX_ENTRIES[name] for name in TEXT_FIELDS & MAX_ENTRIES.keys())
"""Bytes of a request in which no list of texts can have too many entries: each has two bytes, with its comma."""
_PLAIN_TRIGGERS: Final = (0, 1)
_SAME_NAMES: Final[Mapping[str, str]] = {}
_TRUE: Final = msgspec.Raw(b"true")
_IN_NUMBERS: Final = b"0123456789+-.eE, \t\n\r"


def fields_within_limits(
    body: bytes, names: Mapping[str, str] = _SAME_NAMES, pause: Pause = no_pause
) -> RequestFields | None:
    """Return the fields of a request, None for anything but a JSON object, which is left to its reader.

    Raises ``invalid_request``, naming the field, its size and the limit, if one part of the request is too large.
    ``body``: JSON in OpenAI's or llama.cpp's form. ``names``: the names of its fields in the client's request, where
    they differ. ``pause``: called again and again between the parts of a large request.
    """
    try:
        fields = json_fields(body)
    except DECODE_ERRORS:
        return None
    if len(body) <= _SHORT_BYTES and _LIMITED_IF_SHORT.isdisjoint(fields) and not has_many_brackets(body):
        return fields  # as most requests are
    pause()
    most_text = MAX_TEXT_BYTES_WITH_PIECES if fields.get("with_pieces") == _TRUE else MAX_TEXT_BYTES
    for name, raw in fields.items():
        if name in _LIMITED:
            _check_field(name, names.get(name, name), raw, most_text, pause)
            pause()
    if len(body) > MAX_KEYS and body.count(b":") > MAX_KEYS:
        _check_keys(fields, names, pause)
    return fields


def _check_field(name: str, shown: str, raw: msgspec.Raw, most_text: int, pause: Pause) -> None:
    size = memoryview(raw).nbytes
    if name in MAX_BYTES:
        check_size(shown, "bytes of JSON", size, MAX_BYTES[name])
    if name in _COMPILED:
        check_compiled(name, shown, raw)
    elif name in MAX_ENTRIES and size > MAX_ENTRIES[name]:  # each entry has a byte
        check_size(shown, "entries", _entries(raw), MAX_ENTRIES[name])
        pause()
    elif name in MAX_NUMBERS:
        _check_number(shown, raw, MAX_NUMBERS[name])
    if name in PROMPT_FIELDS:
        check_texts(name, shown, raw, most_text, pause)
    elif name == "grammar_triggers":
        _check_triggers(name, decoded(shown, raw))


def _check_keys(fields: RequestFields, names: Mapping[str, str], pause: Pause) -> None:
    if len(fields) > MAX_KEYS:
        raise invalid(f"the request has {len(fields)} fields; the limit is {MAX_KEYS}")
    for name, raw in fields.items():
        shown = names.get(name, name)
        try:
            sizes = [len(each) for each in large_values(raw, MAX_KEYS, pause) if isinstance(each, dict)]
        except DECODE_ERRORS as problem:
            raise invalid(f"`{shown}` cannot be read: {problem}", shown) from None
        check_size(shown, "keys in one object", max(sizes, default=0), MAX_KEYS)


def _check_number(name: str, raw: msgspec.Raw, most: int) -> None:
    """Refuse a number that is too large, even one with too many digits to read."""
    try:
        value = msgspec.json.decode(raw)
    except DECODE_ERRORS:
        value = None
    if isinstance(value, int | float) and value > most:
        raise invalid(f"`{name}` is {value}; the limit is {most}", name)


def _check_triggers(name: str, value: Any) -> None:
    """Refuse regular expressions: an engine searches its whole answer with backtracking, which may never end."""
    for each in value if isinstance(value, list) else []:
        if isinstance(each, dict) and each.get("type", 0) not in _PLAIN_TRIGGERS:
            raise invalid(f"`{name}` may have tokens (type 0) and words (type 1), not patterns", name)


def _entries(raw: msgspec.Raw) -> int:
    """Return how many entries a list or an object has. A list of token numbers counts as one, and so does a text."""
    opening = first_byte(raw)
    if opening == b"{":
        return len(json_fields(raw))
    if opening != b"[" or (begins_with_number(raw) and bytes(raw).translate(None, _IN_NUMBERS) == b"[]"):
        return 1
    return len(json_entries(raw))
