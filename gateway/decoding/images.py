"""Decodes an image within limits, and encodes it again: an engine gets no bytes of the client.

Only the decoder process imports this. It knows five formats, chosen by the first bytes. pillow's search through all of
its formats is not used, because some of them start programs.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from PIL import Image
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from gateway.decoding.image_header import NAMES, has_more_scans, image_size, image_type
from gateway.decoding.limits import MAX_SCANS, MAX_SIDE_PIXELS

_READERS: Final[dict[str, Callable[[Any], Image.Image]]] = {
    "image/png": PngImageFile,
    "image/jpeg": JpegImageFile,
    "image/gif": GifImageFile,
    "image/webp": WebPImageFile,
    "image/bmp": BmpImageFile,
}
_HIGH_QUALITY: Final = 95
"""Quality of a JPEG without a quantization of its own, or with one that cannot be kept."""
_FAST: Final = 1
"""zlib's level for PNG."""

# The size of an image is checked here, before its pixels are read: pillow's own limit would only warn.
Image.MAX_IMAGE_PIXELS = None


class ImageError(ValueError):
    """Why an image is refused, in words for the client."""


class DecodedImage(NamedTuple):
    """A decoded image, safe for an engine."""

    media_type: str
    data: bytes
    pixels: int


def decode_image(data: bytes, max_pixels: int, *, alpha: bool) -> DecodedImage:
    """Return the first frame of an image, reduced to its pixels.

    A JPEG or a lossy WebP becomes a JPEG, because as PNG it would be many times larger; all others become PNG.
    ``alpha``: keep its transparency; engines that only look at an image drop it. Raises :class:`ImageError`.
    """
    kind = image_type(data)
    if not kind:
        raise ImageError(f"it is not a {NAMES} image")
    _check_size(image_size(data), max_pixels)
    if kind == "image/jpeg" and has_more_scans(data, MAX_SCANS):
        raise ImageError(f"it has more than {MAX_SCANS} scans")
    try:
        image = _READERS[kind](io.BytesIO(data))
        _check_size(image.size, max_pixels)
        image.load()
        pixels = image.width * image.height
        if kind == "image/jpeg" and image.mode in ("L", "RGB"):
            return DecodedImage(kind, _as_jpeg(image), pixels)
        if _is_lossy_webp(data) and not alpha:
            return DecodedImage("image/jpeg", _as_jpeg(image.convert("RGB")), pixels)
        return DecodedImage("image/png", _as_png(image, alpha=alpha), pixels)
    except (ImageError, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - pillow's readers raise what they like for a damaged file
        raise ImageError(f"it is damaged, or not a {kind.removeprefix('image/').upper()} that can be read") from None


def _check_size(size: tuple[int, int] | None, max_pixels: int) -> None:
    if size is None:
        return
    width, height = size
    if not (0 < width <= MAX_SIDE_PIXELS and 0 < height <= MAX_SIDE_PIXELS):
        raise ImageError(f"it has {width}x{height} pixels; a side may have from 1 to {MAX_SIDE_PIXELS}")
    if width * height > max_pixels:
        raise ImageError(f"it has {width}x{height} pixels, more than its request may still have ({max_pixels})")


def _is_lossy_webp(data: bytes) -> bool:
    return image_type(data) == "image/webp" and b"VP8 " in data and b"VP8L" not in data


def _as_jpeg(image: Image.Image) -> bytes:
    """Write a JPEG. If the image was one, keep its quantization, which changes next to nothing."""
    image.info = {}
    file = io.BytesIO()
    try:
        image.save(file, "JPEG", quality="keep")
    except (ValueError, OSError):
        file = io.BytesIO()
        image.save(file, "JPEG", quality=_HIGH_QUALITY, subsampling=0)
    return file.getvalue()


def _as_png(image: Image.Image, *, alpha: bool) -> bytes:
    transparent = alpha and ("A" in image.getbands() or "transparency" in image.info)
    if image.mode == "I;16":  # the high byte of each pixel, as engines take it
        plain = Image.frombytes("L", image.size, image.tobytes()[1::2])
    elif transparent:
        plain = image.convert("RGBA")
    elif image.mode in ("1", "L", "LA"):
        plain = image.convert("L")
    else:
        plain = image.convert("RGB")
    plain.info = {}
    file = io.BytesIO()
    plain.save(file, "PNG", compress_level=_FAST)
    return file.getvalue()
