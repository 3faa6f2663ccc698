"""How large the parts of a request may be that an engine compiles or iterates over. Pure.

An engine compiles a grammar in its only loop, with recursion for nesting, before it looks at any other request: a large one stops
all requests of the model, and a deeply nested one ends the process. docs/engines/llamacpp.md has what each costs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from protocol.failures import invalid
from protocol.models.grammar_possibilities import ENDLESS, in_grammar, in_schema
from protocol.wire.decoding import DECODE_ERRORS

MAX_DEPTH: Final = 100
"""Nesting of groups in a grammar or a pattern, and of a JSON schema and of ``chat_template_kwargs``."""
MAX_ALTERNATIVES: Final = 1_000
"""``|`` of a grammar or a pattern; entries of all ``enum``, ``anyOf``, ``oneOf``, ``allOf`` and lists of ``type``
of a request's schemas together. An engine compares those that are possible with each other, and each with its whole vocabulary."""
MAX_OPTIONAL_PARTS: Final = 500
"""``?`` and ``*`` of a grammar, or of all patterns of a request's schemas: where all may be left out, the work grows with their square."""
MAX_POSSIBILITIES: Final = 10_000
"""See :mod:`protocol.models.grammar_possibilities`; for a request's tools together."""
MAX_REPETITIONS: Final = 20_000
"""Sum of the repetition counts of a grammar, or of a request's schemas (``maxLength``, ``{0,20}`` of a ``pattern``, …)."""
LARGE_MAXIMUM: Final = 10_000
"""A ``maxLength`` or ``maxItems`` from which on an engine does not get it (``workers/backends/schema_maxima.py``)."""
MAX_PROPERTIES: Final = 500
"""``properties`` of one object of a schema: the work grows with their square."""
MAX_PATTERN_CHARACTERS: Final = 16_384
"""Of all patterns of a request's schemas together."""

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
_COMPILED: Final = frozenset({"grammar", "json_schema", "response_format", "tools", "chat_template_kwargs"})
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
MAX_NUMBERS: Final = {
    "n_probs": 10_000,
    "logprobs": 10_000,
    "top_logprobs": 10_000,
    "repeat_last_n": 2**20,
    "dry_penalty_last_n": 2**20,
}
"""Field → its value. An engine writes as many probabilities for each token, and has memory for as many tokens."""
MAX_TEXT_BYTES: Final = 4 * 1024 * 1024
"""JSON of one text, or of all texts of a chat: about a million tokens. An engine cannot be interrupted while it tokenizes, and only then
finds that a text is longer than its context."""
_TEXTS: Final = frozenset({"messages", "prompt", "input", "content", "documents", "query", "tokens"}) | {
    "input_prefix",
    "input_suffix",
    "input_extra",
}
_MEDIA: Final = frozenset({"image_url", "input_audio", "input_video", "file"})
"""Fields of those parts of a message that are no text."""

_ALTERNATIVES: Final = frozenset({"enum", "anyOf", "oneOf", "allOf", "type"})
_COUNTS: Final = frozenset({"minItems", "maxItems", "minLength", "maxLength"})
_RANGES: Final = (("minItems", "maxItems"), ("minLength", "maxLength"))
_MAXIMA: Final = frozenset({"maxItems", "maxLength"})
_TOKEN: Final = re.compile(r'"(?:\\.|[^"\\])*"?|\[(?:\\.|[^\]\\])*\]?|#[^\n]*|[A-Za-z-][\w-]*|\d+|[()|?*]', re.DOTALL)
"""Parts of a grammar; a text or a class of characters that is not closed goes to the end, so that each character is read once."""
_PATTERN_TOKEN: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]?|[()|?*]|\d+(?=[^{}()|]{0,20}\})", re.DOTALL)
_PLAIN_TRIGGERS: Final = (0, 1)
_LARGE_NUMBER_DIGITS: Final = 9


class _Sizes(NamedTuple):
    depth: int = 0
    alternatives: int = 0
    optional: int = 0
    repetitions: int = 0


class _Message(msgspec.Struct):
    content: list[msgspec.Raw] | str | None = None


_MULTIPLYING: Final = re.compile(rb"\$ref|pattern|\\u")
"""What may make of a schema more than its alternatives, also if its letters are escaped."""
_SAME_NAMES: Final[Mapping[str, str]] = {}
_list: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_NUMBERS: Final = frozenset(b"%d" % digit for digit in range(10)) | {b"-"}


def check_request_limits(body: bytes, names: Mapping[str, str] = _SAME_NAMES) -> None:
    """Raise ``invalid_request``, naming the field, its size and the limit, for a request that is too large in one part.

    ``body``: JSON in OpenAI's or llama.cpp's form. What is not a JSON object is left to those who read it.
    ``names``: of its fields in the client's request, where they differ.
    """
    try:
        fields = _object(body)
    except DECODE_ERRORS:
        return
    for name, raw in fields.items():
        shown, size = names.get(name, name), memoryview(raw).nbytes
        if name in MAX_BYTES:
            _check(shown, "bytes of JSON", size, MAX_BYTES[name])
        if name in _COMPILED:
            _check_compiled(name, shown, raw)
        elif name in MAX_ENTRIES and size > MAX_ENTRIES[name]:  # each entry has a byte
            _check(shown, "entries", _entries(raw), MAX_ENTRIES[name])
        elif name in MAX_NUMBERS:
            _check_number(shown, raw, MAX_NUMBERS[name])
        if name in _TEXTS and size > MAX_TEXT_BYTES:
            _check(shown, "bytes of text", text_bytes(name, raw), MAX_TEXT_BYTES)
        if name == "grammar_triggers":
            _check_triggers(name, msgspec.json.decode(raw))


def _check_compiled(name: str, shown: str, raw: msgspec.Raw) -> None:
    value = msgspec.json.decode(raw)
    if name != "grammar":
        _check_sizes(shown, _schema_sizes(shown, value))
        if _MULTIPLYING.search(raw):
            _check_possibilities(shown, sum(map(in_schema, _schemas(name, value))))
    elif isinstance(value, str):
        _check_sizes(shown, _text_sizes(_TOKEN.findall(value)))
        _check_possibilities(shown, in_grammar(value))


def _check(name: str, what: str, size: int, most: int) -> None:
    if size > most:
        raise invalid(f"`{name}` has {size} {what}; the limit is {most}", name)


def _check_number(name: str, raw: msgspec.Raw, most: int) -> None:
    """Refuse a number that is too large; one of so many digits that it cannot be read is none."""
    try:
        value = msgspec.json.decode(raw)
    except DECODE_ERRORS:
        value = None
    if isinstance(value, int | float) and value > most:
        raise invalid(f"`{name}` is {value}; the limit is {most}", name)


def _check_ranges(name: str, schema: Mapping[str, Any]) -> None:
    """Refuse a minimum above its maximum: an engine takes the difference as a count without a sign, and never ends."""
    for least, most in _RANGES:
        low, high = schema.get(least), schema.get(most)
        if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
            raise invalid(f"`{name}` has a schema whose `{least}` ({low}) is larger than its `{most}` ({high})", name)


def _check_possibilities(name: str, places: int) -> None:
    if places > MAX_POSSIBILITIES:
        amount = "endless" if places >= ENDLESS else str(places)
        raise invalid(
            f"`{name}` allows {amount} continuations of one beginning; the limit is {MAX_POSSIBILITIES}: nest fewer alternatives, "
            "optional repetitions and references within each other",
            name,
        )


def _schemas(name: str, value: Any) -> list[Any]:
    """Return the schemas of a field, each with all that it refers to."""
    if name == "tools":
        functions = (
            [each.get("function") for each in value if isinstance(each, dict)] if isinstance(value, list) else []
        )
        return [each.get("parameters") for each in functions if isinstance(each, dict)]
    if name == "response_format" and isinstance(value, dict):
        wanted = value.get("json_schema")
        return [value.get("schema"), wanted.get("schema") if isinstance(wanted, dict) else None]
    return [value] if name == "json_schema" else []


def _check_triggers(name: str, value: Any) -> None:
    """Refuse regular expressions: an engine searches its whole answer by backtracking, which may never end."""
    for each in value if isinstance(value, list) else []:
        if isinstance(each, dict) and each.get("type", 0) not in _PLAIN_TRIGGERS:
            raise invalid(f"`{name}` may have tokens (type 0) and words (type 1), not patterns", name)


def _check_sizes(name: str, sizes: _Sizes) -> None:
    _check(name, "levels of nesting", sizes.depth, MAX_DEPTH)
    _check(name, "alternatives", sizes.alternatives, MAX_ALTERNATIVES)
    _check(name, "optional parts", sizes.optional, MAX_OPTIONAL_PARTS)
    _check(name, "repetitions", sizes.repetitions, MAX_REPETITIONS)


def _text_sizes(tokens: Sequence[str]) -> _Sizes:
    """Return the sizes of a grammar or a pattern, as its tokens."""
    depth = deepest = alternatives = optional = repetitions = 0
    for token in tokens:
        if token == "(":  # noqa: S105 - of a grammar, not a password
            depth += 1
            deepest = max(deepest, depth)
        elif token == ")":  # noqa: S105
            depth -= 1
        elif token == "|":  # noqa: S105
            alternatives += 1
        elif token in ("?", "*"):
            optional += 1
        elif token.isdigit():
            repetitions += int(token[:_LARGE_NUMBER_DIGITS])
    return _Sizes(deepest, alternatives, optional, repetitions)


def is_large_maximum(key: str, value: Any) -> bool:
    """Return whether a field of a schema is a maximum that no engine gets. Coding agents' tools have some of half a million."""
    return key in _MAXIMA and isinstance(value, int | float) and value >= LARGE_MAXIMUM


def _schema_sizes(name: str, value: Any) -> _Sizes:
    """Return the sizes of JSON with schemas in it, without recursion; raises as :func:`check_request_limits`."""
    deepest = alternatives = optional = repetitions = characters = 0
    left: list[tuple[Any, int]] = [(value, 1)]
    while left:
        node, depth = left.pop()
        if not isinstance(node, dict | list):
            continue
        deepest = max(deepest, depth)
        if isinstance(node, list):
            left.extend((each, depth + 1) for each in node)
            continue
        _check_ranges(name, node)
        for key, each in node.items():
            if key in _ALTERNATIVES and isinstance(each, list):
                alternatives += len(each)
            elif key in _COUNTS and isinstance(each, int | float) and not is_large_maximum(key, each):
                repetitions += int(min(max(each, 0), MAX_REPETITIONS + 1))
            elif key == "properties" and isinstance(each, dict):
                _check(name, "properties in one object", len(each), MAX_PROPERTIES)
            elif key == "pattern" and isinstance(each, str):
                characters += len(each)
                _check(name, "characters in its patterns", characters, MAX_PATTERN_CHARACTERS)
                sizes = _text_sizes(_PATTERN_TOKEN.findall(each))
                deepest = max(deepest, sizes.depth)
                alternatives += sizes.alternatives
                optional += sizes.optional
                repetitions += sizes.repetitions
            left.append((each, depth + 1))
    return _Sizes(deepest, alternatives, optional, repetitions)


def _entries(raw: msgspec.Raw) -> int:
    """Return how many entries a list or an object has; a list of token numbers is one, and so is a text."""
    opening = memoryview(raw)[:1].tobytes()
    if opening == b"{":
        return len(_object(raw))
    entries = _list(raw) if opening == b"[" else []
    if entries and all(memoryview(each)[:1].tobytes() in _NUMBERS for each in entries):
        return 1
    return len(entries)


def longest_text(body: bytes, most: int) -> tuple[str, int]:
    """Return the field with a text of more than ``most`` bytes of JSON, and its bytes; an empty name if there is none."""
    try:
        fields = _object(body)
    except DECODE_ERRORS:
        return "", 0
    for name in _TEXTS & fields.keys():
        if memoryview(fields[name]).nbytes > most and (size := text_bytes(name, fields[name])) > most:
            return name, size
    return "", 0


def text_bytes(name: str, raw: msgspec.Raw) -> int:
    """Return the bytes of the largest text of a list, or of all that an engine makes one text of."""
    size = memoryview(raw).nbytes
    if memoryview(raw)[:1].tobytes() != b"[":
        return size
    entries = _list(raw)
    if name == "messages":
        return sum(map(_message_bytes, entries))
    if name == "input_extra" or any(memoryview(each)[:1].tobytes() in _NUMBERS for each in entries[:1]):
        return size
    return max((memoryview(each).nbytes for each in entries), default=0)


def _message_bytes(raw: msgspec.Raw) -> int:
    """Return the bytes of a message without its pictures and recordings."""
    size = memoryview(raw).nbytes
    try:
        parts = msgspec.json.decode(raw, type=_Message).content
        media = [part for part in parts if not _MEDIA.isdisjoint(_object(part))] if isinstance(parts, list) else []
    except DECODE_ERRORS:
        return size
    return size - sum(memoryview(part).nbytes for part in media)
