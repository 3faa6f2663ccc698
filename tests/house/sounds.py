"""Recordings for tests: noise and tones in WAV files of any kind."""

from __future__ import annotations

import io
import math
import random
import struct
import wave


def wav(seconds: float, rate: int = 16_000, channels: int = 1, width: int = 2) -> bytes:
    """Return noise, the same every time."""
    noise = random.Random(7).randbytes(round(seconds * rate) * channels * width)
    return packed(noise, rate, channels, width)


def packed(frames: bytes, rate: int = 16_000, channels: int = 1, width: int = 2) -> bytes:
    """Return samples as a WAV file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(width)
        sound.setframerate(rate)
        sound.writeframes(frames)
    return file.getvalue()


def tone(hertz: float, seconds: float, rate: int, channels: int = 1, width: int = 2) -> bytes:
    """Return a sine at half of full scale, the same on every channel."""
    top = 2 ** (8 * width - 1)
    samples = [round(math.sin(2 * math.pi * hertz * n / rate) * (top - 1) / 2) for n in range(round(seconds * rate))]
    if width == 1:
        frames = b"".join(bytes([sample + top]) * channels for sample in samples)
    else:
        frames = b"".join(struct.pack("<i", sample << 8 * (4 - width))[4 - width :] * channels for sample in samples)
    return packed(frames, rate, channels, width)
