"""How deeply the JSON of a body is nested, found without decoding it. Pure.

msgspec and Python have limits of their own, which differ from version to version, and from each other: JSON that one of them takes may
stop another one in the middle of a request.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Final

MAX_NESTING: Final = 200
"""Lists and objects in each other; schemas, and what tools are called with, may have half of that."""
_ESCAPED: Final = b"bfnrtu/"
_NEEDED: Final = b'"[]{}\\' + _ESCAPED
_OTHERS: Final = bytes(byte for byte in range(256) if byte not in _NEEDED)
_STRING: Final = re.compile(rb'"[^"]*+"?')
_STEP: Final = tuple(1 if byte in b"[{" else -1 for byte in range(256))


def is_too_deep(data: bytes) -> bool:
    """Return whether lists and objects are nested beyond the limit, in the part of ``data`` that is JSON."""
    if data.count(b"[") + data.count(b"{") <= MAX_NESTING:
        return False
    # Each step is one pass in C over what the one before has left, most often little. What may follow a backslash stays with it.
    text = data.translate(None, _OTHERS).replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, b"\\" + _ESCAPED)
    brackets = _STRING.sub(b"", text.replace(b'""', b""))
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > MAX_NESTING
