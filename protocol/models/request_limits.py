"""Size limits of the parts of a request that an engine reads, iterates over or compiles.

`grammar_limits` has those of schemas. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from protocol.failures import invalid
from protocol.models.grammar_limits import GRAMMAR_FIELDS, MAX_DEPTH, check_compiled, check_size, decoded
from protocol.models.long_words import MEDIA, check_words
from protocol.wire.decoding import DECODE_ERRORS

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
MAX_KEYS: Final = 4_096
"""Of a request, and of any object in it.

An engine searches the earlier keys for each key: 240,000 keys took it minutes.
"""
MAX_TEXT_BYTES: Final = 4 * 1024 * 1024
"""JSON of one text, or of all texts of a chat: about a million tokens.

An engine cannot be interrupted while it tokenizes, and finds out only then that a text is longer than its context.
"""
MAX_TEXT_BYTES_WITH_PIECES: Final = 256 * 1024
"""The same if the text of each token is also requested: an engine has memory for 400 bytes of each token."""
TEXT_FIELDS: Final = frozenset({"messages", "prompt", "input", "content", "documents", "query", "tokens"}) | {
    "input_prefix",
    "input_suffix",
    "input_extra",
}
"""Fields that an engine tokenizes."""
_IN_CONTEXT: Final = TEXT_FIELDS | {"tools"}
"""Fields from which an engine makes a prompt."""
BYTES_PER_TOKEN: Final = 4
"""Bytes of JSON that count as a token where no engine has counted."""
_LIMITED: Final = frozenset({*MAX_BYTES, *_COMPILED, *MAX_ENTRIES, *MAX_NUMBERS, *TEXT_FIELDS})
"""Fields that are looked at one by one."""
_PLAIN_TRIGGERS: Final = (0, 1)


_JSON: Final = re.compile(r'(?:"(?:[^"\\]|\\.)*+"?|[\[\]{}:,\s]|-?\d[\d.eE+-]*|true|false|null)*+', re.DOTALL)
"""How much of a text is checked as JSON: an engine that tries to read it gives up there at the latest."""
_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}:]', re.DOTALL)
_ESCAPED_ASCII: Final = b"\\u00"
"""How a bracket or a colon begins that JSON has as an escape."""


class _Message(msgspec.Struct):
    content: list[msgspec.Raw] | str | None = None


class _CalledFunction(msgspec.Struct):
    arguments: Any = None


class _Call(msgspec.Struct):
    function: _CalledFunction | None = None


class _Part(msgspec.Struct):
    text: str | None = None


class _ToolMessage(msgspec.Struct):
    """A message with tool calls, or with the answer of a tool."""

    role: str = ""
    content: list[_Part] | str | None = None
    tool_calls: list[_Call] | None = None


RequestFields = dict[str, msgspec.Raw]
"""Field of a request → its JSON."""
_SAME_NAMES: Final[Mapping[str, str]] = {}
_TRUE: Final = msgspec.Raw(b"true")
_list: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_object: Final = msgspec.json.Decoder(RequestFields).decode
_message: Final = msgspec.json.Decoder(_Message).decode
_tool_messages: Final = msgspec.json.Decoder(list[_ToolMessage]).decode
_OTHER_THAN_NUMBERS: Final = re.compile(rb'["\[{tfn]')
"""Beginnings of other values than numbers."""
_NUMBER_FIRST: Final = re.compile(rb"\[\s*[-\d]")


def fields_within_limits(body: bytes, names: Mapping[str, str] = _SAME_NAMES) -> RequestFields | None:
    """Return the fields of a request, None for anything but a JSON object, which is left to its reader.

    Raises ``invalid_request``, naming the field, its size and the limit, if one part of the request is too large.
    ``body``: JSON in OpenAI's or llama.cpp's form. ``names``: the names of its fields in the client's request, where
    they differ.
    """
    try:
        fields = _object(body)
    except DECODE_ERRORS:
        return None
    most_text = MAX_TEXT_BYTES_WITH_PIECES if fields.get("with_pieces") == _TRUE else MAX_TEXT_BYTES
    for name, raw in fields.items():
        if name in _LIMITED:
            _check_field(name, names.get(name, name), raw, most_text)
    if len(body) > MAX_KEYS:  # each key has a byte
        _check_keys(fields, names)
    return fields


def _check_field(name: str, shown: str, raw: msgspec.Raw, most_text: int) -> None:
    size = memoryview(raw).nbytes
    if name in MAX_BYTES:
        check_size(shown, "bytes of JSON", size, MAX_BYTES[name])
    if name in _COMPILED:
        check_compiled(name, shown, raw)
    elif name in MAX_ENTRIES and size > MAX_ENTRIES[name]:  # each entry has a byte
        check_size(shown, "entries", _entries(raw), MAX_ENTRIES[name])
    elif name in MAX_NUMBERS:
        _check_number(shown, raw, MAX_NUMBERS[name])
    if name in TEXT_FIELDS and size > most_text:
        check_size(shown, "bytes of text", text_bytes(name, raw), most_text)
    if name in _IN_CONTEXT and not begins_with_number(raw):
        check_words(shown, raw)
    if name == "grammar_triggers":
        _check_triggers(name, decoded(shown, raw))
    elif name == "messages":
        _check_json_texts(shown, raw)


def _check_keys(fields: Mapping[str, msgspec.Raw], names: Mapping[str, str]) -> None:
    if len(fields) > MAX_KEYS:
        raise invalid(f"the request has {len(fields)} fields; the limit is {MAX_KEYS}")
    for name, raw in fields.items():
        if memoryview(raw).nbytes > MAX_KEYS and bytes(raw).count(b":") > MAX_KEYS:
            shown = names.get(name, name)
            check_size(shown, "keys in one object", _most_keys(decoded(shown, raw)), MAX_KEYS)


def _most_keys(value: Any) -> int:
    """Return how many keys the largest object in ``value`` has, without recursion."""
    most, left = 0, [value]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            most = max(most, len(node))
            left += node.values()
        elif isinstance(node, list):
            left += node
    return most


def _check_json_texts(name: str, raw: msgspec.Raw) -> None:
    """Refuse tool calls and tool answers with JSON that engines cannot take: some chat templates want objects, not text."""
    data = bytes(raw)
    few = data.count(b"[") + data.count(b"{") <= MAX_DEPTH and data.count(b":") <= MAX_KEYS
    if few and _ESCAPED_ASCII not in data:
        return  # so few brackets and colons that no text in it can have too many; most chats have no more
    try:
        messages = _tool_messages(raw)
    except DECODE_ERRORS:
        return
    for text in _json_texts(messages):
        if text.count("[") + text.count("{") <= MAX_DEPTH and text.count(":") <= MAX_KEYS:
            continue
        depth, keys = _json_sizes(text)
        check_size(name, "levels of nesting in JSON of a tool", depth, MAX_DEPTH)
        check_size(name, "keys in one object of a tool", keys, MAX_KEYS)


def _json_sizes(text: str) -> tuple[int, int]:
    """Return how deep the beginning of a text is nested, if it is JSON, and how many keys its largest object has."""
    depth, most, keys = 0, 0, [0]
    prefix = _JSON.match(text)
    for character in _JSON_TOKEN.findall(prefix[0] if prefix else ""):
        if character in ("[", "{"):
            depth = max(depth, len(keys))
            keys.append(0)
        elif character == ":":
            keys[-1] += 1
            most = max(most, keys[-1])
        elif character in ("]", "}") and len(keys) > 1:
            keys.pop()
    return depth, most


def _json_texts(messages: list[_ToolMessage]) -> Iterator[str]:
    for message in messages:
        for call in message.tool_calls or ():
            arguments = call.function and call.function.arguments
            yield arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        if message.role in ("tool", "function"):
            parts = [message.content] if isinstance(message.content, str) else message.content or ()
            yield from (part if isinstance(part, str) else part.text or "" for part in parts)


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
    opening = memoryview(raw)[:1].tobytes()
    if opening == b"{":
        return len(_object(raw))
    if opening != b"[" or _OTHER_THAN_NUMBERS.search(raw, 1) is None:
        return 1
    return len(_list(raw))


def begins_with_number(raw: msgspec.Raw) -> bool:
    """Return whether JSON is a list that begins with a number; it may have millions, which are not decoded for this."""
    return _NUMBER_FIRST.match(raw) is not None


def longest_text(body: bytes, most: int) -> tuple[str, int]:
    """Return the first field with a text of more than ``most`` bytes of JSON, and the number of bytes; an empty name if there is none."""
    try:
        fields = _object(body)
    except DECODE_ERRORS:
        return "", 0
    for name in _IN_CONTEXT & fields.keys():
        if memoryview(fields[name]).nbytes > most and (size := text_bytes(name, fields[name])) > most:
            return name, size
    return "", 0


def text_bytes(name: str, raw: msgspec.Raw) -> int:
    """Return the bytes of the largest text in a list, or of all texts that an engine joins into one."""
    size = memoryview(raw).nbytes
    if memoryview(raw)[:1].tobytes() != b"[" or name in ("input_extra", "tools") or begins_with_number(raw):
        return size
    entries = _list(raw)
    if name == "messages":
        return sum(map(_message_bytes, entries))
    return max((memoryview(each).nbytes for each in entries), default=0)


def estimated_prompt_tokens(body: bytes) -> int:
    """Estimate the tokens of all prompts of a request from the bytes of their texts; 0 for what is not a JSON object."""
    try:
        fields = _object(body)
        texts = sum(_all_text_bytes(name, fields[name]) for name in _IN_CONTEXT & fields.keys())
    except DECODE_ERRORS:
        return 0
    return -(-texts // BYTES_PER_TOKEN)


def _all_text_bytes(name: str, raw: msgspec.Raw) -> int:
    return text_bytes(name, raw) if name == "messages" else memoryview(raw).nbytes


def _message_bytes(raw: msgspec.Raw) -> int:
    """Return the bytes of a message without its images and audio."""
    size = memoryview(raw).nbytes
    try:
        parts = _message(raw).content
        media = [part for part in parts if not MEDIA.isdisjoint(_object(part))] if isinstance(parts, list) else []
    except DECODE_ERRORS:
        return size
    return size - sum(memoryview(part).nbytes for part in media)
