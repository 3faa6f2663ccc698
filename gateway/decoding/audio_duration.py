"""Measures recordings without decoding them: decoding cannot yield more samples than are found here. Pure.

The length in a header is not trusted, because an engine may allocate memory for it. Everything before the sound is left
out, and a WAV file gets a new header: readers try one format after the other, and a tag or an image in the file may
contain a file of another format.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from gateway.decoding.limits import MAX_CHANNELS
from protocol.wire.audio_format import MAX_RATE_HZ, MIN_RATE_HZ, recording_type

_PCM, _FLOAT, _A_LAW, _MU_LAW, _EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
_SAMPLE_BITS: Final = {_PCM: (8, 16, 24, 32), _FLOAT: (32, 64), _A_LAW: (8,), _MU_LAW: (8,)}
"""Coding of a WAV file → the possible sizes of a sample in bits."""
_FMT: Final = struct.Struct("<HHIIHH")

_FLAC_FRAME: Final = re.compile(rb"\xff[\xf8\xf9][\x10-\xff][\x00-\xaf]")
"""The first bytes of a FLAC frame."""
_FLAC_SAMPLES: Final = {
    1: 192,
    **{code: 144 << code for code in range(2, 6)},
    **{code: 1 << code for code in range(8, 16)},
}
_EXPLICIT_BLOCK: Final = (6, 7)
"""Code in a frame's header → its samples. For 6 and 7, they follow in (code - 5) bytes."""
_FLAC_RATES: Final = dict(
    enumerate((0, 88_200, 176_400, 192_000, 8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000))
)
_EXPLICIT_RATE: Final = {12: 1, 13: 2, 14: 2}
"""Code → bytes of the rate. Readers ignore it and use the file's rate."""
_CONTINUED: Final = 0xC0
_FLAC_HEADER_BYTES: Final = 20
"""More than the header of a frame has."""
_CRC_8: Final = [
    functools.reduce(lambda byte, _: byte << 1 & 0xFF ^ (0x07 if byte & 0x80 else 0), range(8), n) for n in range(256)
]
_FLAC_STREAM_INFO, _FLAC_PARAMETERS, _FLAC_BLOCK_KIND = 8, 34, 0x7F
"""Offset and bytes of the parameters; the bits of a block's kind; values above these mark the last block."""

_MPEG_1, _LAYER_1, _LAYER_2 = 3, 3, 2
"""As in a frame's header."""
_MP3_RATES: Final = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
"""Version → samples a second."""
_MP3_KILOBITS: Final = {
    (True, 3): (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 1): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 3): (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""Whether it is MPEG-1, and layer → kilobits a second. Layer III of later versions has the rates of layer II."""
_ID3_BYTES: Final = 10


class RecordingError(ValueError):
    """Why a recording is refused, in words for the client."""


class MeasuredRecording(NamedTuple):
    """A measured recording, safe for an engine."""

    kind: str
    data: bytes
    seconds: float


def measure_recording(data: bytes, max_seconds: float) -> MeasuredRecording:
    """Return a WAV, MP3 or FLAC file and its greatest possible length; raises :class:`RecordingError`."""
    kind = recording_type(data)
    try:
        if kind in ("wav", "riff"):
            data, seconds = _wav(data)
        elif kind == "mp3":
            data, seconds = _mp3(data, max_seconds)
        elif kind == "flac":
            data, seconds = _flac(data, max_seconds)
        else:
            raise RecordingError("it is not a WAV, MP3 or FLAC file")
    except (struct.error, IndexError):
        raise RecordingError("it is damaged") from None
    if seconds > max_seconds:
        raise RecordingError(
            f"it is longer than {max_seconds:.0f} seconds, which is all that its request may still have"
        )
    return MeasuredRecording(kind, data, seconds)


def _check_rate(rate: int, channels: int) -> None:
    if not MIN_RATE_HZ <= rate <= MAX_RATE_HZ:
        raise RecordingError(f"it has {rate} samples a second; from {MIN_RATE_HZ} to {MAX_RATE_HZ} can be read")
    if not 1 <= channels <= MAX_CHANNELS:
        raise RecordingError(f"it has {channels} channels; from 1 to {MAX_CHANNELS} can be read")


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the chunks of a RIFF file. The last one may be incomplete."""
    at = 12
    while at + 8 <= len(data):
        (size,) = struct.unpack_from("<I", data, at + 4)
        yield data[at : at + 4], memoryview(data)[at + 8 : at + 8 + size]
        at += 8 + size + size % 2


def _wav(data: bytes) -> tuple[bytes, float]:
    """Return a WAV file of one format and its samples, and its seconds."""
    found: dict[bytes, memoryview] = {}
    for name, body in _chunks(data):
        found.setdefault(name, body)
        if name == b"data":
            break
    if b"fmt " not in found or b"data" not in found:
        raise RecordingError("it is a WAV file without sound")
    head = found[b"fmt "]
    coding, channels, rate, _, _, bits = _FMT.unpack_from(head)
    if coding == _EXTENSIBLE:
        (coding,) = struct.unpack_from("<H", head, 24)
    if bits not in _SAMPLE_BITS.get(coding, ()):
        raise RecordingError("its samples are compressed, or of a size that is not read: send 16-bit WAV, MP3 or FLAC")
    _check_rate(rate, channels)
    frame = channels * bits // 8
    frames = len(found[b"data"]) // frame
    samples = found[b"data"][: frames * frame]
    fmt = _FMT.pack(coding, channels, rate, rate * frame, frame, bits)
    pad = bytes(len(samples) % 2)
    size = 4 + 8 + len(fmt) + 8 + len(samples) + len(pad)
    head_of_file = struct.pack("<4sI4s4sI", b"RIFF", size, b"WAVE", b"fmt ", len(fmt)) + fmt
    return b"".join([head_of_file, struct.pack("<4sI", b"data", len(samples)), samples, pad]), frames / rate


def _flac(data: bytes, max_seconds: float) -> tuple[bytes, float]:
    """Return a FLAC file without its metadata, and its seconds."""
    if data[4] & _FLAC_BLOCK_KIND or int.from_bytes(data[5:8]) != _FLAC_PARAMETERS:
        raise RecordingError("it is a FLAC file without its parameters")
    at, last = 4, False
    while not last:
        last = data[at] > _FLAC_BLOCK_KIND
        at += 4 + int.from_bytes(data[at + 1 : at + 4])
    if not _FLAC_FRAME.match(data, at):
        raise RecordingError("it is a FLAC file without sound")
    head = data[:4] + b"\x80" + data[5 : _FLAC_STREAM_INFO + _FLAC_PARAMETERS]
    plain = head + data[at:]
    return plain, _flac_seconds(plain, max_seconds)


def _flac_seconds(data: bytes, max_seconds: float) -> float:
    """Count every place where a frame begins.

    About one in ten megabytes only looks like one, and makes it seconds longer.
    """
    packed = int.from_bytes(data[_FLAC_STREAM_INFO + 10 : _FLAC_STREAM_INFO + 18])
    rate, channels, total = packed >> 44, (packed >> 41 & 7) + 1, packed & (1 << 36) - 1
    _check_rate(rate, channels)
    seconds, padded = 0.0, data + bytes(_FLAC_HEADER_BYTES)
    for place in _FLAC_FRAME.finditer(data, _FLAC_STREAM_INFO + _FLAC_PARAMETERS):
        samples, slower = _flac_frame(padded, place.start())
        seconds += samples / min(rate, slower or rate)
        if seconds > max_seconds:
            break
    return max(seconds, total / rate)


def _flac_frame(data: bytes, at: int) -> tuple[int, int]:
    """Return the samples of a frame, and their rate if given; no samples if a checksum shows that no frame begins there."""
    block, rate = data[at + 2] >> 4, data[at + 2] & 0x0F
    end = at + 5 if data[at + 4] < _CONTINUED else at + 12 - (data[at + 4] ^ 0xFF).bit_length()  # the frame's number
    size = int.from_bytes(data[end : end + block - 5]) + 1 if block in _EXPLICIT_BLOCK else _FLAC_SAMPLES[block]
    end += (block - 5 if block in _EXPLICIT_BLOCK else 0) + _EXPLICIT_RATE.get(rate, 0)
    checksum = 0
    for byte in data[at:end]:
        checksum = _CRC_8[checksum ^ byte]
    return (size, _FLAC_RATES.get(rate, 0)) if checksum == data[end] else (0, 0)


def _mp3(data: bytes, max_seconds: float) -> tuple[bytes, float]:
    """Return an MP3 file from its first frame on, and its seconds. Each frame tells its length."""
    first, at, seconds, view = -1, _after_tags(data), 0.0, memoryview(data)
    while seconds <= max_seconds:
        at = data.find(b"\xff", at)
        if at < 0 or at + 4 > len(data):
            break
        frame = _mp3_frame(view[at : at + 4])
        if frame is None:
            at += 1
            continue
        first = at if first < 0 else first
        length, duration = frame
        seconds += duration
        at += length
    if not seconds:
        raise RecordingError("it is an MP3 file without sound")
    return data[first:], seconds


def _after_tags(data: bytes) -> int:
    at = 0
    while data[at : at + 3] == b"ID3" and len(data) > at + _ID3_BYTES:
        size = 0
        for byte in data[at + 6 : at + _ID3_BYTES]:
            size = size << 7 | byte & 0x7F
        at += _ID3_BYTES + size
    return at


def _mp3_frame(header: memoryview) -> tuple[int, float] | None:
    """Return the bytes and the seconds of the frame with this header; None if it is not the header of a frame."""
    version, layer = header[1] >> 3 & 3, header[1] >> 1 & 3
    bitrate, rate_code, padding = header[2] >> 4, header[2] >> 2 & 3, header[2] >> 1 & 1
    if header[1] < 0xE0 or version == 1 or not layer or bitrate == 0xF or rate_code == 3:
        return None
    if bitrate == 0:
        raise RecordingError("it is an MP3 file of free format: the length of its frames is unknown")
    rate, first = _MP3_RATES[version][rate_code], version == _MPEG_1
    bits = _MP3_KILOBITS[first, layer if first else max(layer, _LAYER_2)][bitrate - 1] * 1000
    if layer == _LAYER_1:
        return (12 * bits // rate + padding) * 4, 384 / rate
    samples = 1152 if first or layer == _LAYER_2 else 576
    return samples // 8 * bits // rate + padding, samples / rate
