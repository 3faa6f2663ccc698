"""The formats of live audio, which is kept as 16-bit PCM, and the WAV file that a transcription request has. Pure."""

from __future__ import annotations

import functools
import struct
from typing import Final

import msgspec

from protocol.wire.audio_format import MIN_RATE_HZ

PCM, PCMU, PCMA = "audio/pcm", "audio/pcmu", "audio/pcma"
SAMPLE_BYTES: Final = 2
OPENAI_RATE_HZ: Final = 24_000
LEMONADE_RATE_HZ: Final = 16_000
"""What Lemonade's clients send. They name no format."""
MAX_RATE_HZ: Final = 48_000
G711_RATE_HZ: Final = 8_000
_SHORT_NAMES: Final = {"pcm16": PCM, "g711_ulaw": PCMU, "g711_alaw": PCMA}
"""The names in the beta of OpenAI's API."""
_WAV_HEADER: Final = struct.Struct("<4sI4s4sIHHIIHH4sI")
_CODES: Final = range(256)


class AudioFormat(msgspec.Struct, frozen=True):
    """A format: one channel of samples, of 16 bits in little-endian order or of 8 bits in G.711."""

    type: str
    rate: int
    """Samples a second."""

    @property
    def is_pcm(self) -> bool:
        """Whether its samples have 16 bits."""
        return self.type == PCM

    @property
    def short_name(self) -> str:
        """Its name in the beta of OpenAI's API."""
        return next(short for short, name in _SHORT_NAMES.items() if name == self.type)

    def decode(self, data: bytes) -> bytes:
        """Return the samples as 16-bit PCM."""
        if self.is_pcm:
            return data
        low, high = _tables(self.type)
        samples = bytearray(SAMPLE_BYTES * len(data))
        samples[::2], samples[1::2] = data.translate(low), data.translate(high)
        return bytes(samples)


def audio_format(name: str, rate: int | None) -> AudioFormat:
    """Return the format with either kind of name; raises ValueError, with a text for the client, for one that is not known."""
    kind = _SHORT_NAMES.get(name, name)
    if kind not in _SHORT_NAMES.values():
        raise ValueError(f"it must be one of {', '.join([*_SHORT_NAMES.values(), *_SHORT_NAMES])}")
    if kind != PCM:
        if rate not in (None, G711_RATE_HZ):
            raise ValueError(f"G.711 has {G711_RATE_HZ} samples a second")
        return AudioFormat(kind, G711_RATE_HZ)
    rate = OPENAI_RATE_HZ if rate is None else rate
    if not MIN_RATE_HZ <= rate <= MAX_RATE_HZ:
        raise ValueError(f"its rate must be from {MIN_RATE_HZ} to {MAX_RATE_HZ}")
    return AudioFormat(kind, rate)


def wav(samples: bytes, rate: int) -> bytes:
    """Return 16-bit PCM as a WAV file."""
    size = len(samples)
    riff, form = _WAV_HEADER.size - 8 + size, (1, 1, rate, SAMPLE_BYTES * rate, SAMPLE_BYTES, 8 * SAMPLE_BYTES)
    return _WAV_HEADER.pack(b"RIFF", riff, b"WAVE", b"fmt ", 16, *form, b"data", size) + samples


@functools.cache
def _tables(kind: str) -> tuple[bytes, bytes]:
    """Return the low and the high byte of the sample for each code of G.711."""
    decode = _mu_law_sample if kind == PCMU else _a_law_sample
    samples = [decode(code) & 0xFFFF for code in _CODES]
    return bytes(sample & 0xFF for sample in samples), bytes(sample >> 8 for sample in samples)


def _mu_law_sample(code: int) -> int:
    code ^= 0xFF
    size = (((code & 0x0F) << 3) + 0x84 << (code >> 4 & 7)) - 0x84
    return -size if code & 0x80 else size


def _a_law_sample(code: int) -> int:
    code ^= 0x55
    step, exponent = (code & 0x0F) << 4, code >> 4 & 7
    size = step + 8 if exponent == 0 else step + 0x108 << exponent - 1
    return size if code & 0x80 else -size
