"""Recordings for tests: noise and tones in WAV files of any kind, and tones in other formats that people send."""

from __future__ import annotations

import io
import math
import random
import struct
import wave

import av
import numpy as np


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


def encoded(container: str, codec: str, seconds: float = 2.0, rate: int = 44_100, channels: int = 2) -> bytes:
    """Return a tone of 440 hertz at half of full scale, as FFmpeg's encoders write it."""
    layout = {1: "mono", 2: "stereo", 6: "5.1"}[channels]
    sine = np.sin(2 * np.pi * 440 * np.arange(round(seconds * rate)) / rate).astype(np.float32) / 2
    whole = av.AudioFrame.from_ndarray(np.tile(sine, (channels, 1)), format="fltp", layout=layout)
    whole.sample_rate = rate
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(codec, rate=rate, layout=layout)
        fifo = av.AudioFifo()
        for frame in av.AudioResampler(stream.format.name, layout, rate).resample(whole):
            fifo.write(frame)
        size = stream.codec_context.frame_size or 1024
        while (frame := fifo.read(size) or fifo.read()) is not None:
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return file.getvalue()
