"""What libraries say of a client's mistakes, in the words of those who write JSON and HTTP. Pure."""

from __future__ import annotations

import re
from typing import Final

from gunicorn.http import errors

_TYPES: Final = {
    "int": "integer",
    "float": "number",
    "str": "string",
    "bytes": "string",
    "bool": "boolean",
    "dict": "object",
    "list": "array",
    "None": "null",
}
_QUOTED_TYPES: Final = re.compile(r"`(\w+(?: \| \w+)*)`")
_BYTES_PREFIX: Final = re.compile(r"""\bb(?=['"])""")


def describe_type_error(text: str) -> str:
    """Return msgspec's complaint with JSON's names: ``expected integer or null, got string``."""
    text = _QUOTED_TYPES.sub(lambda found: _json_type_names(found[1].split(" | ")), text)
    return text[:1].lower() + text[1:]


def _json_type_names(types: list[str]) -> str:
    names = dict.fromkeys(_TYPES.get(each, each) for each in types)
    if "number" in names:
        names.pop("integer", None)  # which is one
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def describe_parse_error(problem: BaseException) -> str:
    """Return the complaint of gunicorn's parser."""
    match problem:
        case errors.InvalidChunkSize():
            given = problem.data.decode("ascii", "backslashreplace")
            return f"the size of a chunk must be a hexadecimal number, not '{given}'"
        case errors.ChunkMissingTerminator():
            return "a chunk does not end where its size says"
        case errors.InvalidHTTPVersion():
            return "this version of HTTP is not spoken here"
        case _:
            return _BYTES_PREFIX.sub("", str(problem))
