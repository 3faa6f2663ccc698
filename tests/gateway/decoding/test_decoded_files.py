"""What the decoder makes of files, in its real process: good images, and small files that decode to much data."""

from __future__ import annotations

import base64
import io
import struct
import zlib

import pytest
from PIL import Image

from gateway.decoding.decoder_process import (
    IMAGE,
    IMAGE_WITH_ALPHA,
    RECORDING,
    Budget,
    Decoded,
    DecoderSession,
    RefusedError,
)
from gateway.decoding.limits import DECODE_TIMEOUT_S, MAX_PIXELS, MAX_SCANS
from tests.gateway.decoding.conftest import FILE, LARGE, NOISE, decode, opened
from tests.support.media import PNG_HEAD, chunk, many_scans, playlist, png_of, written

CODED = base64.b64encode(FILE).decode()


@pytest.mark.parametrize("kind", ["PNG", "GIF", "BMP", "WEBP", "JPEG"])
def test_each_format_is_written_anew_with_the_same_pixels(decoder: DecoderSession, kind: str) -> None:
    options = {"lossless": True} if kind == "WEBP" else {"quality": 90} if kind == "JPEG" else {}
    image = NOISE.quantize(256) if kind == "GIF" else NOISE
    data = written(image, kind, **options)
    found = opened(decode(decoder, data))
    expected = Image.open(io.BytesIO(data)).convert("RGB")
    differences = [abs(a - b) for a, b in zip(found.convert("RGB").tobytes(), expected.tobytes(), strict=True)]
    assert max(differences) <= (12 if kind == "JPEG" else 0)
    assert sum(differences) / len(differences) < 1


def test_nothing_of_a_file_but_its_pixels_remains(decoder: DecoderSession) -> None:
    exif = Image.Exif()
    exif[0x010E] = "secret"
    for kind in ("PNG", "JPEG", "WEBP"):
        decoded = decode(decoder, written(NOISE, kind, exif=exif, icc_profile=b"secret" * 40) + b"secret: trailing")
        assert b"secret" not in decoded.data
    bits = zlib.compress(bytes(5 * 4)) + b"secret"
    hidden = PNG_HEAD + chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 8, 0, 0, 0, 0)) + chunk(b"IDAT", bits)
    assert b"secret" not in decode(decoder, hidden + chunk(b"IEND", b"")).data


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_every_kind_of_pixel_becomes_one_that_all_engines_read(decoder: DecoderSession, mode: str) -> None:
    image = Image.frombytes("I;16", (16, 8), bytes(range(256))) if mode == "I;16" else NOISE.convert(mode)
    found = opened(decode(decoder, written(image, "PNG")))
    assert found.mode in ("L", "RGB")
    if mode == "I;16":
        assert found.tobytes() == bytes(range(1, 256, 2))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_a_mask_keeps_what_is_transparent(decoder: DecoderSession, mode: str) -> None:
    image = Image.new("RGBA", (8, 8), (255, 0, 0, 255))
    image.paste((0, 0, 0, 0), (0, 0, 4, 8))
    data = written(image.convert(mode), "PNG", **({"transparency": 0} if mode == "P" else {}))
    alpha = opened(decode(decoder, data, IMAGE_WITH_ALPHA)).getchannel("A")
    assert alpha.getextrema()[0] == 0


def test_interlaced_animated_cmyk_and_progressive_images_are_read(decoder: DecoderSession) -> None:
    animated = {"save_all": True, "append_images": [NOISE.rotate(90), NOISE.rotate(180)]}
    files = [
        written(NOISE, "PNG", **animated),
        written(NOISE, "WEBP", **animated),
        written(NOISE, "GIF", **animated),
        written(NOISE, "JPEG", progressive=True),
        written(NOISE.convert("CMYK"), "JPEG"),
        written(NOISE, "MPO", **animated),
        written(NOISE.convert("L"), "JPEG"),
    ]
    for data in files:
        assert opened(decode(decoder, data)).size == NOISE.size


def webp_of(width: int, height: int) -> bytes:
    """Return a lossless WebP that claims a size."""
    bits = struct.pack("<BI", 0x2F, (width - 1) | (height - 1) << 14) + bytes(8)
    body = b"WEBPVP8L" + struct.pack("<I", len(bits)) + bits
    return b"RIFF" + struct.pack("<I", len(body)) + body


def jpeg_of(width: int, height: int) -> bytes:
    """Return the beginning of a JPEG that claims a size."""
    data = bytearray(written(NOISE, "JPEG"))
    at = data.index(b"\xff\xc0")
    struct.pack_into(">HH", data, at + 5, height, width)
    return bytes(data)


BOMBS = {
    "png 30000x30000": png_of(30_000, 30_000, bytes(100)),
    "png one pixel, 20 MB inside": png_of(1, 1, bytes(20_000_000)),
    "png zTXt": png_of(1, 1, b"\0\0", (b"zTXt", b"k\0\0" + zlib.compress(bytes(20_000_000), 9))),
    "png iTXt": png_of(1, 1, b"\0\0", (b"iTXt", b"k\0\1\0\0\0" + zlib.compress(bytes(20_000_000), 9))),
    "png iCCP": png_of(1, 1, b"\0\0", (b"iCCP", b"k\0\0" + zlib.compress(bytes(20_000_000), 9))),
    "gif of many frames": written(
        NOISE, "GIF", save_all=True, append_images=[NOISE.rotate(turn) for turn in range(1, 200)]
    ),
    "gif 65535x65535": b"GIF89a\xff\xff\xff\xff\0\0\0,\0\0\0\0\xff\xff\xff\xff\0\x08\x01\0\0;",
    "webp 16383x16383": webp_of(16_383, 16_383),
    "jpeg 65500x65500": jpeg_of(65_500, 65_500),
    "jpeg 8192x8192, truncated": jpeg_of(8192, 8192)[:400],
    "bmp 1x2000000000": b"BM"
    + struct.pack("<IIIIiiHHIIiiII", 54, 0, 54, 40, 1, 2_000_000_000, 1, 24, 0, 0, 0, 0, 0, 0),
    "1x65535": written(Image.new("L", (1, 65_535)), "PNG"),
    "0x0": png_of(0, 0, b""),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_that_decodes_to_much_costs_little(decoder: DecoderSession, name: str) -> None:
    data = BOMBS[name]
    assert len(data) < 2_000_000
    try:
        decoded = decode(decoder, data)
    except RefusedError:
        decoded = Decoded("", b"", 0)
    assert len(decoded.data) < 100_000
    assert decoded.cost <= NOISE.width * NOISE.height
    assert decoder._seconds_left > DECODE_TIMEOUT_S / 2


def test_all_images_of_a_request_share_its_pixels(decoder: DecoderSession) -> None:
    data = written(LARGE, "PNG")
    assert decode(decoder, data).cost == 64_000_000
    with pytest.raises(RefusedError, match="8000x8000"):
        decoder.decode(IMAGE, Budget(MAX_PIXELS - 2 * 64_000_000, 2**31), data)


def test_a_photograph_in_webp_does_not_become_many_times_larger(decoder: DecoderSession) -> None:
    photograph = Image.effect_noise((600, 400), 20).convert("RGB")
    see_through = photograph.convert("RGBA")
    see_through.putalpha(100)
    for image in (photograph, see_through):
        data = written(image, "WEBP", quality=90)
        decoded = decode(decoder, data)
        assert len(decoded.data) < 4 * len(data)
        assert opened(decoded).format == "JPEG"


def test_what_a_file_becomes_has_a_limit_of_bytes(decoder: DecoderSession) -> None:
    data = written(NOISE.quantize(8), "GIF")
    size = len(decode(decoder, data).data)
    assert size > len(data)
    with pytest.raises(RefusedError, match=f"it has {size} bytes"):
        decoder.decode(IMAGE, Budget(MAX_PIXELS, size - 1), data)


@pytest.mark.parametrize("scans", [MAX_SCANS, MAX_SCANS + 1, 2000])
def test_a_jpeg_of_many_scans_is_refused(decoder: DecoderSession, scans: int) -> None:
    """Each scan costs work for all pixels, even if it is empty."""
    data = many_scans(64, scans)
    if scans <= MAX_SCANS:
        assert decode(decoder, data).cost == 64 * 64
        return
    with pytest.raises(RefusedError, match=f"more than {MAX_SCANS} scans"):
        decode(decoder, data)


@pytest.mark.parametrize(
    "spelling",
    [
        CODED,
        CODED.rstrip("="),
        base64.urlsafe_b64encode(FILE).decode(),
        "\r\n".join(CODED[at : at + 76] for at in range(0, len(CODED), 76)),
    ],
    ids=["padded", "not padded", "for URLs", "in lines"],
)
def test_a_file_in_base64_is_answered_in_base64(decoder: DecoderSession, spelling: str) -> None:
    decoded = decode(decoder, spelling)
    assert base64.b64decode(decoded.data, validate=True) == decode(decoder, FILE).data
    with pytest.raises(RefusedError, match=f"it has {len(decoded.data)} bytes"):
        decoder.decode(IMAGE, Budget(MAX_PIXELS, len(decoded.data) - 1), spelling)


@pytest.mark.parametrize("text", ["A*AA", "AAAAA", "AA=A", "€AAA", "AAAA=AAA"])
def test_a_file_that_is_not_base64_is_refused(decoder: DecoderSession, text: str) -> None:
    with pytest.raises(RefusedError, match="it is not in base64"):
        decode(decoder, text)


def test_files_that_are_not_images_or_recordings_are_refused(decoder: DecoderSession) -> None:
    for data in (playlist("http://127.0.0.1"), b"", b"\x89PNG\r\n\x1a\n", b"BM", b"GIF89a", b"RIFF\0\0\0\0WEBP"):
        for kind in (IMAGE, RECORDING):
            with pytest.raises(RefusedError):
                decode(decoder, data, kind)
