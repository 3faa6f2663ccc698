"""Measures recordings without decoding them: no more samples can come out of one than is found here. Pure.

What a header says of its length is not believed, because an engine may allocate memory for it. A WAV file gets a new header.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from gateway.decoding.limits import MAX_CHANNELS, MAX_RATE_HZ, MIN_RATE_HZ
from protocol.wire.recordings import recording_type

_PCM, _FLOAT, _A_LAW, _MU_LAW, _EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
_SAMPLE_BITS: Final = {_PCM: (8, 16, 24, 32), _FLOAT: (32, 64), _A_LAW: (8,), _MU_LAW: (8,)}
"""Coding of a WAV file → the bits that a sample may have."""
_FMT: Final = struct.Struct("<HHIIHH")

_FLAC_FRAME: Final = re.compile(rb"\xff[\xf8\xf9][\x10-\xff][\x00-\xaf]")
"""How a frame of a FLAC file begins; false ones only make a file look longer."""
_FLAC_SAMPLES: Final = {
    1: 192,
    **{code: 144 << code for code in range(2, 6)},
    **{code: 1 << code for code in range(8, 16)},
}
"""Code in a frame's header → its samples; 6 and 7 mean that the number follows."""
_FLAC_STREAM_INFO: Final = 8
_MAX_FLAC_BLOCK: Final = 65_536

_MPEG_1, _LAYER_1, _LAYER_2 = 3, 3, 2
"""As a frame's header has them."""
_MP3_RATES: Final = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
"""Version → samples a second."""
_MP3_KILOBITS: Final = {
    (True, 3): (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 1): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 3): (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""Whether it is MPEG-1, and layer → kilobits a second; layer III of later versions has those of layer II."""
_ID3_BYTES: Final = 10


class RecordingError(ValueError):
    """Why a recording is refused, in words for the client."""


class MeasuredRecording(NamedTuple):
    """A recording as an engine may have it."""

    kind: str
    data: bytes
    seconds: float


def measure_recording(data: bytes, max_seconds: float) -> MeasuredRecording:
    """Return a WAV, MP3 or FLAC file and its length at most; raises :class:`RecordingError`."""
    kind = recording_type(data)
    try:
        if kind in ("wav", "riff"):
            data, seconds = _wav(data)
        elif kind == "mp3":
            seconds = _mp3_seconds(data, max_seconds)
        elif kind == "flac":
            seconds = _flac_seconds(data, max_seconds)
        else:
            raise RecordingError("it is no WAV, MP3 or FLAC file")
    except struct.error:
        raise RecordingError("it is damaged") from None
    if seconds > max_seconds:
        raise RecordingError(f"it is longer than {max_seconds:.0f} seconds, which is what its request may have left")
    return MeasuredRecording(kind, data, seconds)


def _check_rate(rate: int, channels: int) -> None:
    if not MIN_RATE_HZ <= rate <= MAX_RATE_HZ:
        raise RecordingError(f"it has {rate} samples a second; from {MIN_RATE_HZ} to {MAX_RATE_HZ} can be read")
    if not 1 <= channels <= MAX_CHANNELS:
        raise RecordingError(f"it has {channels} channels; from 1 to {MAX_CHANNELS} can be read")


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the chunks of a RIFF file, the last one as far as it is there."""
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


def _flac_seconds(data: bytes, max_seconds: float) -> float:
    """Count every place where a frame may begin; none is shorter than its block says."""
    if data[4] & 0x7F or int.from_bytes(data[5:8]) < 18:
        raise RecordingError("it is a FLAC file without its parameters")
    packed = int.from_bytes(data[_FLAC_STREAM_INFO + 10 : _FLAC_STREAM_INFO + 18])
    rate, channels, total = packed >> 44, (packed >> 41 & 7) + 1, packed & (1 << 36) - 1
    _check_rate(rate, channels)
    samples, most = 0, max_seconds * rate
    for place in _FLAC_FRAME.finditer(data, _FLAC_STREAM_INFO):
        samples += _FLAC_SAMPLES.get(data[place.start() + 2] >> 4) or _explicit_block(data, place.start())
        if samples > most:
            break
    return max(samples, total) / rate


def _explicit_block(data: bytes, at: int) -> int:
    """Return the samples of a frame whose header has their number after that of the frame, which is coded like a character."""
    lead = data[at + 4] if at + 4 < len(data) else 0
    extra = 8 - (lead ^ 0xFF).bit_length() if lead >= 0xC0 else 1
    width = 1 if data[at + 2] >> 4 == 6 else 2
    field = data[at + 4 + extra : at + 4 + extra + width]
    return min(int.from_bytes(field) + 1, _MAX_FLAC_BLOCK)


def _mp3_seconds(data: bytes, max_seconds: float) -> float:
    """Follow the frames, each of which says its length."""
    at, seconds, view = _after_tags(data), 0.0, memoryview(data)
    while seconds <= max_seconds:
        at = data.find(b"\xff", at)
        if at < 0 or at + 4 > len(data):
            break
        frame = _mp3_frame(view[at : at + 4])
        if frame is None:
            at += 1
            continue
        length, duration = frame
        seconds += duration
        at += length
    if not seconds:
        raise RecordingError("it is an MP3 file without sound")
    return seconds


def _after_tags(data: bytes) -> int:
    at = 0
    while data[at : at + 3] == b"ID3" and len(data) > at + _ID3_BYTES:
        size = 0
        for byte in data[at + 6 : at + _ID3_BYTES]:
            size = size << 7 | byte & 0x7F
        at += _ID3_BYTES + size
    return at


def _mp3_frame(header: memoryview) -> tuple[int, float] | None:
    """Return the bytes and the seconds of the frame with this header; None if it is no header of a frame."""
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
