"""Screenshots are written again only if a person would see a difference."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from tests.screenshots.pictures import COLOURS, keep


def screenshot(*changed: tuple[int, int], size: int = 40) -> bytes:
    """Return a grey picture with these pixels black."""
    picture = Image.new("RGB", (size, size), (200, 200, 200))
    for place in changed:
        picture.putpixel(place, (0, 0, 0))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def test_a_picture_that_looks_the_same_stays(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "overview.png"
    assert keep(path, screenshot())
    assert not keep(path, screenshot((1, 1)))
    assert keep(path, screenshot(*((1, row) for row in range(40))))
    assert keep(path, screenshot(size=41))
    assert len(Image.open(path).getcolors() or []) <= COLOURS
