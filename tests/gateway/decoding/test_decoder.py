"""The decoder's real process: small files that decode to much data, good images, clients that leave."""

from __future__ import annotations

import base64
import io
import signal
import socket
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import gevent
import pytest
from PIL import Image

from gateway.decoding import __main__ as decoder_main
from gateway.decoding import decoder_process
from gateway.decoding.decoder_process import (
    IMAGE,
    IMAGE_WITH_ALPHA,
    RECORDING,
    AbandonedError,
    Budget,
    Decoded,
    DecoderSession,
    RefusedError,
)
from gateway.decoding.limits import DECODE_TIMEOUT_S, MAX_DECODERS_OF_CLIENT, MAX_PIXELS, MAX_SCANS
from protocol.failures import LemonbusError
from tests.support.media import PNG_HEAD, chunk, many_scans, noise, playlist, png_of, written
from tests.support.processes import stop

BUDGET = Budget(MAX_PIXELS, 2**31)
NOISE = noise(64, 48)


FILE = written(NOISE, "PNG")
CODED = base64.b64encode(FILE).decode()
CLIENT = "127.0.0.1"


@pytest.fixture(scope="module")
def decoder() -> DecoderSession:
    return DecoderSession(CLIENT)


def decode(session: DecoderSession, data: bytes | str, kind: int = IMAGE) -> Decoded:
    session._seconds_left = DECODE_TIMEOUT_S
    return session.decode(kind, BUDGET, data)


def opened(decoded: Decoded) -> Image.Image:
    image = Image.open(io.BytesIO(decoded.data))
    image.load()
    assert Image.MIME[image.format or ""] == decoded.kind
    return image


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


LARGE = Image.new("L", (8000, 8000))
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


def test_a_decoder_of_a_large_image_keeps_no_memory(decoder: DecoderSession) -> None:
    decode(decoder, written(LARGE.convert("RGB"), "PNG"))
    process = decoder_process._idle[-1]
    assert gevent.with_timeout(20, process.exit_code) == 0
    assert decode(decoder, written(NOISE, "PNG")).cost == 64 * 48


def test_a_decoder_is_used_again_however_much_memory_its_gateway_has_had(decoder: DecoderSession) -> None:
    """The kernel lets a new process inherit the peak of its parent's memory."""
    assert len(b"x" * 200 * 2**20) > 1024 * decoder_main.MAX_RESIDENT_KIB
    while decoder_process._idle:
        decoder_process._idle.pop().close()
    decode(decoder, FILE)
    used = decoder_process._idle[-1]
    decode(decoder, FILE)
    assert decoder_process._idle[-1] is used


def test_a_decoder_that_cannot_tell_its_memory_answers_and_ends_in_order(tmp_path: Path) -> None:
    """Its answer is sent: an error now would be told to the next request, which another decoder can answer."""
    (tmp_path / "status").write_bytes(b"Name:\tpython\n")  # without VmHWM, as some kernels write it
    program = (
        "import pathlib; from gateway.decoding import __main__ as decoder;"
        f"decoder.Path = lambda _: pathlib.Path({str(tmp_path / 'status')!r}); decoder.main()"
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(60)
        with subprocess.Popen([sys.executable, "-c", program], stdin=theirs) as process:
            try:
                ours.sendall(decoder_process.ORDER.pack(IMAGE, False, *BUDGET, 20.0, len(FILE)) + FILE)
                status, cost, *_ = decoder_process._ANSWER.unpack(
                    decoder_process.receive(ours, decoder_process._ANSWER.size)
                )
                assert (status, cost) == (decoder_process.DONE, NOISE.width * NOISE.height)
                assert process.wait(60) == 0
            finally:
                process.kill()


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


def test_an_image_that_takes_too_long_ends_the_decoder_and_nothing_else() -> None:
    session = DecoderSession(CLIENT)
    session._seconds_left = 0.1
    with pytest.raises(RefusedError, match="takes more than"):
        session.decode(IMAGE, BUDGET, written(LARGE.convert("RGB"), "PNG"))
    assert opened(decode(session, written(NOISE, "PNG"))).size == NOISE.size


def put_stopped_decoder() -> decoder_process._Decoder:
    """Make the next order endless: it goes to a decoder that is stopped."""
    stopped = decoder_process._Decoder()
    stop(stopped.pid)
    decoder_process._idle.append(stopped)
    return stopped


@pytest.mark.parametrize("scans", [MAX_SCANS, MAX_SCANS + 1, 2000])
def test_a_jpeg_of_many_scans_is_refused(decoder: DecoderSession, scans: int) -> None:
    """Each scan costs work for all pixels, even if it is empty."""
    data = many_scans(64, scans)
    if scans <= MAX_SCANS:
        assert decode(decoder, data).cost == 64 * 64
        return
    with pytest.raises(RefusedError, match=f"more than {MAX_SCANS} scans"):
        decode(decoder, data)


@pytest.mark.parametrize("data", [written(NOISE, "PNG"), bytes(2**24)], ids=["an answer", "space in a buffer"])
def test_a_stopped_decoder_is_killed_at_its_deadline_and_replaced(
    decoder: DecoderSession, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = put_stopped_decoder()
    with monkeypatch.context() as hurried:
        hurried.setattr(decoder_process, "DECODE_DEADLINE_S", 0.2)
        with pytest.raises(LemonbusError, match="not decoded within") as late:
            gevent.with_timeout(30, decode, decoder, data)
    assert late.value.failure.http_status == 503
    assert stopped.exit_code() == -signal.SIGKILL
    assert decode(decoder, written(NOISE, "PNG")).cost == NOISE.width * NOISE.height


def test_one_client_leaves_a_decoder_to_others() -> None:
    """Its orders are endless; another client's images are decoded anyway, and its own third one waits."""
    sessions = [DecoderSession("greedy") for _ in range(MAX_DECODERS_OF_CLIENT + 1)]
    for _ in range(MAX_DECODERS_OF_CLIENT):
        put_stopped_decoder()
    greenlets = [gevent.spawn(decode, session, FILE) for session in sessions]
    gevent.sleep(0)
    assert [session._decoder is not None for session in sessions] == [True] * MAX_DECODERS_OF_CLIENT + [False]
    assert decode(DecoderSession("other"), FILE).cost == NOISE.width * NOISE.height
    for session in reversed(sessions):
        session.abandon()
    gevent.joinall(greenlets, timeout=30)
    assert all(isinstance(greenlet.exception, AbandonedError) for greenlet in greenlets)
    assert not decoder_process._limiter._waiting
    assert not decoder_process._limiter._working


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


def test_decoding_ends_when_the_client_leaves_and_blocks_no_other_greenlet() -> None:
    ended = []

    def work(session: DecoderSession) -> None:
        try:
            session.decode(IMAGE, BUDGET, FILE)
        except AbandonedError:
            ended.append(session)

    session, process = DecoderSession(CLIENT), put_stopped_decoder()
    greenlet = gevent.spawn(work, session)
    for _ in range(20):
        gevent.sleep(0.01)  # other greenlets run
    assert session._decoder is process
    assert not ended
    session.abandon()
    greenlet.join(20)
    assert ended
    assert gevent.with_timeout(20, process.exit_code) == -signal.SIGKILL


def test_a_decoder_that_ended_while_it_was_idle_is_replaced(decoder: DecoderSession) -> None:
    decode(decoder, written(NOISE, "PNG"))
    idle = decoder_process._idle[-1]
    idle._socket.shutdown(1)
    assert gevent.with_timeout(20, idle.exit_code) == 0
    assert decode(decoder, written(NOISE, "PNG")).cost == 64 * 48


def test_files_that_are_not_images_or_recordings_are_refused(decoder: DecoderSession) -> None:
    for data in (playlist("http://127.0.0.1"), b"", b"\x89PNG\r\n\x1a\n", b"BM", b"GIF89a", b"RIFF\0\0\0\0WEBP"):
        for kind in (IMAGE, RECORDING):
            with pytest.raises(RefusedError):
                decode(decoder, data, kind)


@pytest.mark.parametrize(("kind", "reader"), [(IMAGE, "decode_image"), (RECORDING, "measure_recording")])
def test_a_file_that_takes_too_much_memory_is_refused(kind: int, reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(decoder_main, reader, fail)
    status, decoded = decoder_main.answer(kind, BUDGET, b"")
    assert (status, decoded.data) == (decoder_process.REFUSED, b"decoding it takes too much memory")
