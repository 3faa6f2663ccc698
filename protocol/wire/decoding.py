"""What bytes from elsewhere may turn out to be."""

from __future__ import annotations

from typing import Final

import msgspec

DECODE_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""All that msgspec raises for bytes that are not what they should be: another shape, text that is no UTF-8, too deep."""
