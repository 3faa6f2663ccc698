"""The exceptions of decoding bytes that another process, or a file, has brought."""

from __future__ import annotations

from typing import Final

import msgspec

DECODE_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""All that msgspec raises for bytes of another shape, with text that is not UTF-8, or nested too deep."""
