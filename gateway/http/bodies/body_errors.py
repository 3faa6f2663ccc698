"""What is wrong with a body, in JSON's words: the field, or the line and column, from the messages of the decoder. Pure."""

from __future__ import annotations

import contextlib
import json
import math
import re
from typing import Final

import msgspec

from protocol.failures import Code, Failure, LemonbusError, invalid

_AT_BYTE: Final = re.compile(r" ?\(byte (\d+)\)")
_AT_FIELD: Final = re.compile(r" - at `(?:key in )?\$?\.?([^`]*)`$")
_OUT_OF_RANGE: Final = "Number out of range"
_UNKNOWN_FIELD: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_JSON_NAMES: Final = {
    "int": "integer",
    "float": "number",
    "str": "string",
    "bytes": "string",
    "bool": "boolean",
    "dict": "object",
    "list": "array",
    "None": "null",
}
"""Name of a type of Python → JSON's."""
_QUOTED_TYPES: Final = re.compile(r"`(\w+(?: \| \w+)*)`")


def is_unnamed_number(text: str) -> bool:
    """Return whether a message of msgspec is about a number that is out of range, and does not name its field."""
    return text.startswith(_OUT_OF_RANGE) and "[...]" in text


def out_of_range_field(data: bytes) -> str:
    """Return the name of the field whose number is too large for a float; empty if unknown. msgspec does not name it in a dictionary."""
    with contextlib.suppress(ValueError):  # what follows that number may be anything
        return _too_large(json.loads(data))
    return ""


def _too_large(value: object, name: str = "") -> str:
    """Return the name of the first number that is too large for a float, such as ``options.x[0]``; empty if there is none."""
    if isinstance(value, dict):
        inner = ((each, f"{name}.{key}" if name else str(key)[:80]) for key, each in value.items())
    elif isinstance(value, list):
        inner = ((each, f"{name}[{index}]") for index, each in enumerate(value))
    else:
        return name if isinstance(value, float) and math.isinf(value) else ""
    return next(filter(None, (_too_large(*each) for each in inner)), "")


def wrong_field(text: str, cls: type, where: str = "") -> LemonbusError:
    """Return the failure for a message of msgspec.

    ``where``: the name of the decoded object, empty for the body itself.
    """
    prefix = f"{where}." if where else ""
    if not where and (unknown := _UNKNOWN_FIELD.fullmatch(text)):
        known = ", ".join(f"`{field.encode_name}`" for field in msgspec.structs.fields(cls)) or "none"
        return invalid(f"`{unknown[1]}` is not a field of this request; its fields: {known}", unknown[1][:80])
    field = _AT_FIELD.search(text)
    if field is None:
        missing = re.search(r"missing required field `([^`]+)`", text)
        name = prefix + missing.group(1) if missing else where
        message = (
            f"`{name}` is required"
            if missing
            else f"{f'`{where}`' if where else 'the body'} must be a JSON object: {describe_type_error(text)}"
        )
        return invalid(message, name)
    name = prefix + field.group(1)
    missing = re.search(r"missing required field `([^`]+)`", text)
    if missing:
        name = f"{name}.{missing.group(1)}"
        return invalid(f"`{name}` is required", name)
    return invalid(f"`{name}`: {describe_type_error(text[: field.start()])}", name)


def _first_bad_byte(data: bytes) -> int:
    try:
        data.decode()
    except UnicodeDecodeError as problem:
        return problem.start
    return len(data)


def bad_json(data: bytes, problem: Exception) -> LemonbusError:
    """Return the failure for a body that is not JSON, with the line and column of the mistake."""
    if isinstance(problem, UnicodeDecodeError):
        # msgspec counts from the start of the string, this message from the start of the body.
        position, what = _first_bad_byte(data), "invalid UTF-8"
    else:
        text = str(problem)
        at = _AT_BYTE.search(text)
        position = int(at.group(1)) if at else len(data)
        what = _AT_BYTE.sub("", text).removeprefix("JSON is malformed: ").rstrip(".")
        what = what[:1].lower() + what[1:]
    before = data[:position]
    line = before.count(b"\n") + 1
    column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
    return Failure(Code.INVALID_JSON, f"bad JSON at line {line} column {column}: {what}").raised()


def describe_type_error(text: str) -> str:
    """Return msgspec's complaint with JSON's names: ``expected integer or null, got string``."""
    text = _QUOTED_TYPES.sub(lambda found: _json_type_names(found[1].split(" | ")), text)
    return text[:1].lower() + text[1:]


def _json_type_names(types: list[str]) -> str:
    names = dict.fromkeys(_JSON_NAMES.get(each, each) for each in types)
    if "number" in names:
        names.pop("integer", None)  # an integer is a number
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
