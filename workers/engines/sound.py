"""From the bytes of a recording to what whisper models listen to: one channel, 16,000 samples a second.

WAV files are read here; whatever else there is, ``ffmpeg`` reads, if that was asked for.
"""

from __future__ import annotations

import io
import math
import shutil
import subprocess
import tempfile
import wave
from typing import Final

import numpy as np
from numpy.typing import NDArray

RATE: Final = 16_000
SLOWEST, FASTEST = 4_000, 384_000
LONGEST_S: Final = 4 * 3600
"""Seconds of a recording that ``ffmpeg`` unpacks: a small file may be a very long silence."""
_ZEROS: Final = 16
"""Zero crossings of the filter on either side: aliases stay 50 dB down."""
_BATCH: Final = 16_384
_HALF: Final = np.float32(128)
_EXTENSIBLE, _PCM, _FORMAT = b"\xfe\xff", b"\x01\x00", 20
_SUBFORMAT: Final = 44

Samples = NDArray[np.float32]


class SoundError(ValueError):
    """A recording that cannot be read; the text is for the caller."""


def samples(data: bytes, *, convert: bool) -> Samples:
    """Return a recording as a model hears it; raises :class:`SoundError`."""
    if _is_wave(data):
        return _of_wave(data)
    if not convert:
        raise SoundError("the recording is no WAV file: PCM in a WAV file is what is accepted here")
    program = shutil.which("ffmpeg")
    if program is None:
        raise SoundError("the recording is no WAV file, and there is no ffmpeg here to convert it")
    return _converted(program, data)


def _is_wave(data: bytes) -> bool:
    return data[:4] == b"RIFF" and data[8:12] == b"WAVE"


def _of_wave(data: bytes) -> Samples:
    if data[12:16] == b"fmt " and data[_FORMAT : _FORMAT + 2] == _EXTENSIBLE and data[_SUBFORMAT:][:2] == _PCM:
        # The same samples under a longer header, which Python's reader knows from 3.12 on.
        data = data[:_FORMAT] + _PCM + data[_FORMAT + 2 :]
    try:
        with wave.open(io.BytesIO(data)) as file:
            channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            frames = file.readframes(file.getnframes())
    except (wave.Error, EOFError, RuntimeError) as problem:
        raise SoundError(f"the WAV file cannot be read: {str(problem) or 'it is truncated'}") from None
    if not SLOWEST <= rate <= FASTEST:
        raise SoundError(f"the WAV file has {rate} samples a second; from {SLOWEST} to {FASTEST} can be read")
    if width not in _READERS:
        raise SoundError(f"the WAV file has samples of {width} bytes; 1 to 4 can be read")
    whole = frames[: len(frames) // (channels * width) * channels * width]
    heard = _READERS[width](whole).reshape(-1, channels)
    return resampled(heard.mean(axis=1, dtype=np.float32) if channels > 1 else heard[:, 0], rate)


def _bytes(frames: bytes) -> Samples:
    return (np.frombuffer(frames, np.uint8).astype(np.float32) - _HALF) / _HALF


def _words(frames: bytes) -> Samples:
    return np.frombuffer(frames, "<i2").astype(np.float32) / np.float32(2**15)


def _three_bytes(frames: bytes) -> Samples:
    wide = np.zeros((len(frames) // 3, 4), np.uint8)
    wide[:, 1:] = np.frombuffer(frames, np.uint8).reshape(-1, 3)
    return wide.view("<i4")[:, 0].astype(np.float32) / np.float32(2**31)


def _double_words(frames: bytes) -> Samples:
    return np.frombuffer(frames, "<i4").astype(np.float32) / np.float32(2**31)


_READERS: Final = {1: _bytes, 2: _words, 3: _three_bytes, 4: _double_words}


def resampled(heard: Samples, rate: int) -> Samples:
    """Return the same sound at :data:`RATE`: a windowed sinc, one row of weights for each phase."""
    if rate == RATE or not heard.size:
        return np.ascontiguousarray(heard, np.float32)
    divisor = math.gcd(rate, RATE)
    up, down = RATE // divisor, rate // divisor
    scale = min(1.0, up / down)
    half = math.ceil(_ZEROS / scale)
    offsets = np.arange(1 - half, half + 1)
    distance = offsets[None] - np.arange(up)[:, None] / up
    weights = scale * np.sinc(scale * distance) * np.cos(np.clip(distance / half, -1, 1) * (np.pi / 2)) ** 2
    weights = weights.astype(np.float32)
    padded = np.pad(heard, half)
    length = math.ceil(heard.size * up / down)
    out = np.empty(length, np.float32)
    for start in range(0, length, _BATCH):
        steps = np.arange(start, min(start + _BATCH, length)) * down
        places = steps // up + half
        np.einsum(
            "ij,ij->i", padded[places[:, None] + offsets], weights[steps % up], out=out[start : start + steps.size]
        )
    return out


def _converted(program: str, data: bytes) -> Samples:
    with tempfile.NamedTemporaryFile(prefix="lemonbus-") as file:
        file.write(data)
        file.flush()
        # A file that names other places is a request to read those.
        words = [program, "-nostdin", "-loglevel", "error", "-protocol_whitelist", "file", "-i", file.name]
        words += ["-vn", "-t", str(LONGEST_S), "-ac", "1", "-ar", str(RATE), "-f", "s16le", "pipe:1"]
        try:
            done = subprocess.run(words, capture_output=True, check=False, timeout=LONGEST_S / 10)
        except (OSError, subprocess.TimeoutExpired):
            raise SoundError("ffmpeg could not convert the recording") from None
    if done.returncode:
        raise SoundError("the recording is none that ffmpeg can convert")
    return _words(done.stdout[: len(done.stdout) // 2 * 2])
