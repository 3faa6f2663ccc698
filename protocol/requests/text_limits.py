"""Limits on the texts of a request: their bytes, parts that no tokenizer can split, and JSON in the texts of tools. Pure.

A tokenizer first splits a text into parts. llama.cpp does this with ``std::regex`` for many models, which recurses into
each character of a part. So a word of a megabyte overflows its stack: docs/engines/llamacpp.md has what was observed.

A large request is read part by part. ``pause`` is called between the parts, so that the caller can let others work.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec

from protocol.failures import DECODE_ERRORS, invalid
from protocol.requests.grammar_limits import MAX_DEPTH, check_size

MAX_TEXT_BYTES: Final = 4 * 1024 * 1024
"""JSON of one text, or of all texts of a chat: about a million tokens.

An engine cannot be interrupted while it tokenizes, and finds out only then that a text is longer than its context.
"""
MAX_TEXT_BYTES_WITH_PIECES: Final = 256 * 1024
"""The same if the text of each token is also requested: an engine has memory for 400 bytes of each token."""
MAX_KEYS: Final = 4_096
"""Of a request, and of any object in it.

An engine searches the earlier keys for each key: 240,000 keys took it minutes.
"""
TEXT_FIELDS: Final = frozenset({"messages", "prompt", "input", "content", "documents", "query", "tokens"}) | {
    "input_prefix",
    "input_suffix",
    "input_extra",
}
"""Fields that an engine tokenizes."""
PROMPT_FIELDS: Final = TEXT_FIELDS | {"tools"}
"""Fields from which an engine makes a prompt."""
BYTES_PER_TOKEN: Final = 4
"""Bytes of JSON that count as a token where no engine has counted."""
LONGEST_PART: Final = 524_288
"""Characters. A longer part of a text is always refused, one of less than half this length never. Between these, it depends on where
the part begins."""
MEDIA: Final = frozenset({"image_url", "input_audio", "input_video", "file", "multimodal_data"})
"""Fields beside texts that are not text."""
_BLOCK: Final = LONGEST_PART // 2
_ONE_PART: Final = re.compile(r"[^ \t-\r.,!?]+|[\W_]+")
"""What some tokenizer may treat as one part: anything not divided by blanks or ends of sentences, or anything
without letters and numbers. Tokenizers that stop earlier divide more."""
_NUMBER_FIRST: Final = re.compile(rb"\[\s*[-\d]")
_CONTAINERS: Final = (str, dict, list)
_ENTRIES_OF_STEP: Final = 4_096
_MAX_STEPS: Final = 8
"""Nesting down to which a large value is read level by level: each level is searched for the end of the next one."""

_JSON: Final = re.compile(r'(?:"(?:[^"\\]|\\.)*+"?|[\[\]{}:,\s]|-?\d[\d.eE+-]*|true|false|null)*+', re.DOTALL)
"""How much of a text is checked as JSON: an engine that tries to read it gives up there at the latest."""
_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}:]', re.DOTALL)
_ESCAPED_ASCII: Final = b"\\u00"
"""How a bracket or a colon begins that JSON has as an escape."""
_SEARCHED_BYTES: Final = 256 * 1024
"""JSON of messages that is searched for brackets before any message is read."""

Pause = Callable[[], object]


class _Message(msgspec.Struct):
    content: list[msgspec.Raw] | str | None = None


class _CalledFunction(msgspec.Struct):
    arguments: Any = None


class _Call(msgspec.Struct):
    function: _CalledFunction | None = None


class _Part(msgspec.Struct):
    text: str | None = None


class _Sender(msgspec.Struct):
    """Who wrote a message, and what may be JSON in it."""

    role: str = ""
    content: msgspec.Raw = msgspec.Raw(b"null")
    tool_calls: list[_Call] | None = None


RequestFields = dict[str, msgspec.Raw]
"""Field of an object → its JSON."""
json_fields: Final = msgspec.json.Decoder(RequestFields).decode
json_entries: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_any: Final = msgspec.json.decode
_message: Final = msgspec.json.Decoder(_Message).decode
_sender: Final = msgspec.json.Decoder(_Sender).decode
_tool_text: Final = msgspec.json.Decoder(list[_Part] | str | None).decode


def first_byte(raw: msgspec.Raw) -> bytes:
    """Return the first byte of JSON, which tells a list, an object and a text apart without decoding it; empty if there is none."""
    return memoryview(raw)[:1].tobytes()


def no_pause() -> None:
    """Do not pause."""


def check_texts(name: str, shown: str, raw: msgspec.Raw, most: int, pause: Pause = no_pause) -> None:
    """Raise ``invalid_request`` if a field of :data:`PROMPT_FIELDS` has too much text, or text that an engine cannot take.

    ``shown``: its name in messages. ``most``: bytes of one text, or of all texts of a chat.
    """
    size = memoryview(raw).nbytes
    if size > most and name in TEXT_FIELDS:
        check_size(shown, "bytes of text", text_bytes(name, raw, pause), most)
    if size >= LONGEST_PART and not begins_with_number(raw):
        _check_parts(shown, raw, pause)
    if name == "messages" and (size > _SEARCHED_BYTES or has_many_brackets(bytes(raw))):
        _check_tools(shown, raw, pause)


def begins_with_number(raw: msgspec.Raw) -> bool:
    """Return whether JSON is a list that begins with a number; it may have millions, which are not decoded for this."""
    return _NUMBER_FIRST.match(raw) is not None


def longest_text(body: bytes, most: int) -> tuple[str, int]:
    """Return the first field with a text of more than ``most`` bytes of JSON, and the number of bytes; an empty name if there is none."""
    try:
        fields = json_fields(body)
    except DECODE_ERRORS:
        return "", 0
    for name in PROMPT_FIELDS & fields.keys():
        if memoryview(fields[name]).nbytes > most and (size := text_bytes(name, fields[name])) > most:
            return name, size
    return "", 0


def text_bytes(name: str, raw: msgspec.Raw, pause: Pause = no_pause) -> int:
    """Return the bytes of the largest text in a list, or of all texts that an engine joins into one."""
    size = memoryview(raw).nbytes
    if first_byte(raw) != b"[" or name in ("input_extra", "tools") or begins_with_number(raw):
        return size
    entries = json_entries(raw)
    pause()
    if name == "messages":
        return sum(_message_bytes(each, pause) for each in entries)
    return max((memoryview(each).nbytes for each in entries), default=0)


def estimated_prompt_tokens(body: bytes) -> int:
    """Estimate the tokens of all prompts of a request from the bytes of their texts; 0 for what is not a JSON object."""
    try:
        return estimated_tokens(json_fields(body))
    except DECODE_ERRORS:
        return 0


def estimated_tokens(fields: RequestFields, pause: Pause = no_pause) -> int:
    """Estimate the same from the request's fields; 0 if a text of them cannot be read."""
    try:
        texts = sum(_all_text_bytes(name, fields[name], pause) for name in PROMPT_FIELDS & fields.keys())
    except DECODE_ERRORS:
        return 0
    return -(-texts // BYTES_PER_TOKEN)


def _all_text_bytes(name: str, raw: msgspec.Raw, pause: Pause) -> int:
    return text_bytes(name, raw, pause) if name == "messages" else memoryview(raw).nbytes


def _message_bytes(raw: msgspec.Raw, pause: Pause) -> int:
    """Return the bytes of a message without its images and audio."""
    size = memoryview(raw).nbytes
    media = 0
    try:
        parts = _message(raw).content
        pause()
        for part in parts if isinstance(parts, list) else ():
            media += 0 if MEDIA.isdisjoint(json_fields(part)) else memoryview(part).nbytes
            pause()
    except DECODE_ERRORS:
        return size
    return size - media


def large_values(raw: msgspec.Raw, least: int, pause: Pause, without: AbstractSet[str] = frozenset()) -> Iterator[Any]:
    """Yield the objects, lists and texts in JSON that have at least ``least`` bytes; smaller ones only where they are deeply nested.

    The values of an object, and the entries of a list, may be JSON themselves. ``without``: fields that are not looked
    at. Raises ``DECODE_ERRORS`` for what cannot be read.
    """
    left: list[tuple[Any, int]] = [(raw, 0)] if _may_be_large(raw, least) else []
    while left:
        value, depth = left.pop()
        if isinstance(value, msgspec.Raw):
            value = _opened(value, depth)
            pause()
        yield value
        if isinstance(value, dict):
            inner = [each for key, each in value.items() if key not in without]
        else:
            inner = value if isinstance(value, list) else []
        for start in range(0, len(inner), _ENTRIES_OF_STEP):
            some = inner[start : start + _ENTRIES_OF_STEP]
            left += [(each, depth + 1) for each in some if _may_be_large(each, least)]
            if len(some) == _ENTRIES_OF_STEP:
                pause()


def _may_be_large(value: Any, least: int) -> bool:
    return memoryview(value).nbytes >= least if isinstance(value, msgspec.Raw) else isinstance(value, _CONTAINERS)


def _opened(raw: msgspec.Raw, depth: int) -> Any:
    opening = first_byte(raw)
    if depth < _MAX_STEPS and opening == b"{":
        return json_fields(raw)
    if depth < _MAX_STEPS and opening == b"[" and not begins_with_number(raw):
        return json_entries(raw)
    return _any(raw)


def _check_parts(shown: str, raw: msgspec.Raw, pause: Pause) -> None:
    """Refuse a text, or a key, with a part that is too long for tokenizers."""
    try:
        for value in large_values(raw, _BLOCK, pause, without=MEDIA):
            texts = [value] if isinstance(value, str) else value if isinstance(value, dict) else ()
            if any(_has_long_part(text) for text in texts if len(text) >= _BLOCK):
                raise invalid(
                    f"`{shown}` has a text with {_BLOCK} characters in a row without a blank or punctuation, or without a letter or digit; "
                    f"the limit is {_BLOCK}: an engine's tokenizer cannot split it",
                    shown,
                )
    except DECODE_ERRORS:
        return  # left to its reader


def _has_long_part(text: str) -> bool:
    # A part of twice this length contains one of these blocks, wherever it begins.
    return any(_ONE_PART.fullmatch(text, start, start + _BLOCK) for start in range(0, len(text) - _BLOCK + 1, _BLOCK))


def has_many_brackets(data: bytes) -> bool:
    """Return whether JSON has so many brackets and colons that a text in it may be JSON beyond the limits. Most chats have fewer."""
    if b"\\" in data and _ESCAPED_ASCII in data:  # asked in this order, it is found fast in a text without backslashes
        return True
    many_colons = len(data) > MAX_KEYS and data.count(b":") > MAX_KEYS
    # Half the time of two counts.
    return many_colons or (len(data) > MAX_DEPTH and len(data) - len(data.translate(None, b"[{")) > MAX_DEPTH)


def _check_tools(shown: str, raw: msgspec.Raw, pause: Pause) -> None:
    """Refuse tool calls and tool answers with JSON that engines cannot take: some chat templates want objects, not text."""
    if first_byte(raw) != b"[":
        return  # left to its reader; routes without messages pass it on
    for message in json_entries(raw):
        pause()
        for text in _json_texts(message):
            if text.count("[") + text.count("{") > MAX_DEPTH or text.count(":") > MAX_KEYS:
                depth, keys = _json_sizes(text)
                check_size(shown, "levels of nesting in JSON of a tool", depth, MAX_DEPTH)
                check_size(shown, "keys in one object of a tool", keys, MAX_KEYS)


def _json_texts(raw: msgspec.Raw) -> Iterator[str]:
    """Yield texts in a message that may be JSON. Stop where it is not a valid message: its reader reports that."""
    with contextlib.suppress(*DECODE_ERRORS):
        message = _sender(raw)
        for call in message.tool_calls or ():
            arguments = call.function and call.function.arguments
            yield arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        if message.role in ("tool", "function"):
            content = _tool_text(message.content)
            yield from [content] if isinstance(content, str) else [part.text or "" for part in content or ()]


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
