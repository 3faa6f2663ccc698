"""Reads base64 of either alphabet, with or without padding and line breaks, and otherwise strictly. Pure."""

from __future__ import annotations

import binascii
import contextlib
from typing import Final

_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")


def from_base64(text: bytes) -> bytes:
    """Return the bytes of a text in base64; raises ``binascii.Error``.

    Engines read it leniently, each in its own way.
    """
    with contextlib.suppress(binascii.Error):
        return binascii.a2b_base64(text, strict_mode=True)  # nearly always; the rest takes twice the time
    text = text.translate(_URL_SAFE, b" \t\r\n").rstrip(b"=")
    return binascii.a2b_base64(text + b"=" * (-len(text) % 4), strict_mode=True)
