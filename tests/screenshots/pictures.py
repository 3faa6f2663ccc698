"""Pictures for the repository: few colours, and unchanged if a person would see no difference."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Final

from PIL import Image, ImageChops

COLOURS: Final = 64
SAME: Final = 0.01
"""The share of pixels that may differ before a picture is written again: numbers and ages always do."""
VISIBLE: Final = 24
"""The difference of a pixel, of 255, from which on it counts."""


def keep(path: Path, screenshot: bytes) -> bool:
    """Write a screenshot to ``path`` unless it looks like the picture there; return whether it was written."""
    taken = Image.open(io.BytesIO(screenshot)).convert("RGB")
    if path.exists() and is_nearly(Image.open(path).convert("RGB"), taken):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    taken.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    return True


def is_nearly(one: Image.Image, other: Image.Image) -> bool:
    """Return whether two pictures have nearly the same pixels."""
    if one.size != other.size:
        return False
    difference = ImageChops.difference(one, other).convert("L").point(lambda value: 255 * (value >= VISIBLE))
    return difference.histogram()[255] <= SAME * one.width * one.height
