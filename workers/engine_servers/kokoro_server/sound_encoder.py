"""Writes sound in the forms of OpenAI's API, piece by piece: bytes leave as soon as a form has them.

The library av (FFmpeg) encodes all forms but ``pcm`` and ``wav``. It only gets samples that were made here.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

import numpy as np

from protocol.wire.speech import SAMPLE_RATE

_CONTAINERS: Final = {
    "mp3": ("mp3", "libmp3lame", "s16p", 64_000),
    "opus": ("ogg", "libopus", "s16", 32_000),
    "aac": ("adts", "aac", "fltp", 64_000),
    "flac": ("flac", "flac", "s16", 0),
}
"""Form → container, encoder, its kind of samples, bits a second."""
_TICK: Final = Fraction(1, SAMPLE_RATE)
_UNKNOWN: Final = 0xFFFF_FFFF
"""The length in the header of a WAV stream, where it is not known yet. Players read to the end."""


class SoundEncoder:
    """One answer."""

    def __init__(self, form: str) -> None:
        """Write in this ``response_format``."""
        self._begun = form != "wav"
        self._av = _AvEncoder(*_CONTAINERS[form]) if form in _CONTAINERS else None

    def encode(self, samples: Any) -> bytes:
        """Return the bytes that are ready after these samples, floats from -1 to 1; none if the form needs more samples."""
        whole = (np.clip(samples, -1, 1) * 32_767).astype("<i2")
        if self._av is not None:
            return self._av.encode(whole)
        head = b"" if self._begun else _wav_header()
        self._begun = True
        return head + bytes(whole.tobytes())

    def end(self) -> bytes:
        """Return the last bytes."""
        return self._av.end() if self._av is not None else b""


def _wav_header() -> bytes:
    form = struct.pack("<HHIIHH", 1, 1, SAMPLE_RATE, 2 * SAMPLE_RATE, 2, 16)
    return b"RIFF%bWAVEfmt %b%bdata%b" % (
        struct.pack("<I", _UNKNOWN),
        struct.pack("<I", len(form)),
        form,
        struct.pack("<I", _UNKNOWN),
    )


class _Sink(io.RawIOBase):
    """What the library writes to: it cannot be searched, so containers are written as streams."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


class _AvEncoder:
    def __init__(self, container: str, codec: str, kind: str, bits: int) -> None:
        import av  # noqa: PLC0415 - 90 ms, for these forms only

        self._sink = _Sink()
        options = {"flush_packets": "1", **({"write_xing": "0"} if container == "mp3" else {})}
        self._container: Any = av.open(self._sink, "w", format=container, options=options)
        stream: Any = self._container.add_stream(codec, rate=SAMPLE_RATE)
        stream.layout, stream.format = "mono", kind
        if bits:
            stream.bit_rate = bits
        self._stream = stream
        self._frame: Callable[[Any], Any] = lambda samples: av.AudioFrame.from_ndarray(
            samples.reshape(1, -1), format="s16", layout="mono"
        )
        self._at = 0

    def encode(self, samples: Any) -> bytes:
        if len(samples):
            frame = self._frame(samples)
            frame.sample_rate, frame.pts, frame.time_base = SAMPLE_RATE, self._at, _TICK
            self._at += len(samples)
            self._mux(frame)
        return self._sink.take()

    def end(self) -> bytes:
        self._mux(None)
        self._container.close()
        return self._sink.take()

    def _mux(self, frame: Any) -> None:
        for packet in self._stream.encode(frame):
            self._container.mux(packet)
