"""How deeply the JSON of a body is nested, found without decoding it. Pure.

msgspec and Python have their own limits, which differ between versions and from each other: JSON that one of them
accepts may stop the other one in the middle of a request.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Final

MAX_NESTING: Final = 200
"""Nesting of lists and objects. Schemas, and arguments of tools, may have half of that."""
_ESCAPED: Final = b"bfnrtu/"
_NEEDED: Final = b'"[]{}\\' + _ESCAPED
_OTHERS: Final = bytes(byte for byte in range(256) if byte not in _NEEDED)
_STRING: Final = re.compile(rb'"[^"]*+"?')
_STEP: Final = tuple(1 if byte in b"[{" else -1 for byte in range(256))


def is_too_deep(data: bytes) -> bool:
    """Return whether lists and objects are nested beyond the limit, in the part of ``data`` that is JSON."""
    if len(data) <= MAX_NESTING or len(data) - len(data.translate(None, b"[{")) <= MAX_NESTING:
        return False
    # Each step is one pass in C over what the one before has left, usually little. What may follow a backslash stays
    # with it.
    text = data.translate(None, _OTHERS).replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, b"\\" + _ESCAPED)
    brackets = _STRING.sub(b"", text.replace(b'""', b""))
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > MAX_NESTING
