"""The exceptions of decoding bytes that come from another process or a file."""

from __future__ import annotations

from typing import Final

import msgspec

DECODE_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Everything that msgspec raises for bytes of the wrong shape, for text that is not UTF-8, and for deep nesting."""
