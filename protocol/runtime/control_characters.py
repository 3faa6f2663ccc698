"""Characters that change how a text is shown: control characters, and those that reverse or hide parts of it. Pure.

A client can put them into a path, a name or a header. Logs, which people read on terminals, show them as escapes.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

_CONTROLS: Final = (range(0x20), range(0x7F, 0xA0))
FORMAT_CONTROLS: Final = (
    range(0xAD, 0xAE),  # soft hyphen
    range(0x61C, 0x61D),  # Arabic letter mark
    range(0x180E, 0x180F),
    range(0x200B, 0x2010),  # of zero width; marks of direction
    range(0x2028, 0x202F),  # line and paragraph separator; embeddings and overrides of direction
    range(0x2060, 0x2070),  # invisible operators; isolates
    range(0xFEFF, 0xFF00),
    range(0xFFF9, 0xFFFC),  # interlinear annotation
    range(0xE0000, 0xE0080),  # tags
)
"""Code points that are invisible."""


def _json_escape(code: int) -> str:
    units = chr(code).encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


ESCAPES: Final = {code: f"\\x{code:02x}" for code in chain(*_CONTROLS)} | {
    code: f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}" for code in chain(*FORMAT_CONTROLS)
}
"""For ``str.translate``: each such character → a visible escape."""
_JSON_ESCAPES: Final = {code: _json_escape(code) for code in chain(range(0x80, 0xA0), *FORMAT_CONTROLS)}


def escape_in_json(data: bytes) -> bytes:
    """Return the same JSON with escapes for these characters.

    A program reads the same texts; a person sees no effect.
    """
    return data if data.isascii() else data.decode().translate(_JSON_ESCAPES).encode()
