"""Masks of pictures: OpenAI's are transparent in the areas to draw, and the engine's are white there."""

from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image

from protocol.failures import LemonbusError
from workers.backends.sdcpp.image_request import engine_mask


def picture(mode: str, left: Any, right: Any, kind: str = "png", **how: Any) -> bytes:
    """Return two pixels of these colours."""
    image = Image.new(mode, (2, 1))
    image.putdata([left, right])
    file = io.BytesIO()
    image.save(file, kind, **how)
    return file.getvalue()


def pixels(mask: bytes) -> list[Any]:
    with Image.open(io.BytesIO(mask)) as image:
        return list(image.convert("L").tobytes())


@pytest.mark.parametrize(
    "mask",
    [
        picture("RGBA", (0, 0, 0, 0), (0, 0, 0, 255)),
        picture("RGBA", (255, 255, 255, 0), (255, 255, 255, 255)),
        picture("LA", (9, 0), (9, 255)),
        picture("P", 0, 1, transparency=0),
        picture("RGB", (1, 2, 3), (4, 5, 6), transparency=(1, 2, 3)),
    ],
)
def test_transparent_is_drawn_anew_whatever_its_colour(mask: bytes) -> None:
    assert pixels(engine_mask(mask)) == [255, 0]


def test_half_transparent_is_half_drawn() -> None:
    assert pixels(engine_mask(picture("RGBA", (9, 9, 9, 155), (9, 9, 9, 0)))) == [100, 255]


@pytest.mark.parametrize(
    "mask",
    [
        picture("L", 255, 0),
        picture("RGB", (255, 255, 255), (0, 0, 0)),
        picture("RGBA", (255, 255, 255, 255), (0, 0, 0, 255)),
        picture("L", 255, 0, "jpeg"),
    ],
)
def test_without_transparency_white_is_drawn_anew(mask: bytes) -> None:
    assert engine_mask(mask) == mask


@pytest.mark.parametrize("mask", [b"", b"GIF89a", picture("RGBA", (0, 0, 0, 0), (0, 0, 0, 255))[:30]], ids=len)
def test_a_mask_that_cannot_be_read(mask: bytes) -> None:
    with pytest.raises(LemonbusError, match="`mask` cannot be read") as reported:
        engine_mask(mask)
    assert reported.value.failure.param == "mask"
