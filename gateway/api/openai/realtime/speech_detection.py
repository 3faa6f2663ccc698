"""Finds speech in live audio by its loudness. Pure.

A frame counts as speech if it is louder than the threshold, and clearly louder than steady noise: the loudness
below which no frame was lately. So steady noise does not count as speech for long.
"""

from __future__ import annotations

import math
from operator import mul
from typing import Final

import msgspec

from gateway.api.openai.realtime.audio_format import SAMPLE_BYTES

FRAME_MS: Final = 20
START_FRAMES: Final = 3
"""Loud frames in a row with which speech begins: a click is shorter."""
_COMPARED_RATE_HZ: Final = 8_000
"""About as many samples a second are looked at: loudness needs no more."""
_FULL_SCALE: Final = 32_768
_LEMONADE_THRESHOLDS: Final = 0.1
"""A threshold below this is a loudness, as Lemonade's clients send it: 0.01 is theirs, and what 0.5 means."""
_LEAST_LOUDNESS: Final = 0.0005
_NOISE_FACTOR: Final = 3.0
"""How many times as loud as the noise speech is."""
_NOISE_GROWTH: Final = 1.01
"""By how much noise may grow in a frame: tenfold in five seconds."""
_QUIETER: Final = 0.6
"""Speech goes on down to this part of the loudness that began it."""


class TurnDetection(msgspec.Struct, frozen=True, kw_only=True):
    """When a turn begins and ends (``server_vad``). The defaults are OpenAI's."""

    threshold: float = 0.5
    """From 0 to 1."""
    prefix_padding_ms: int = 300
    """How much audio before the speech belongs to its turn."""
    silence_duration_ms: int = 500
    """The silence that ends a turn."""


def loudness(samples: memoryview, rate: int) -> float:
    """Return the root mean square of samples, of which 1 is the most. ``samples``: 16-bit, at least one."""
    some = samples[:: max(1, rate // _COMPARED_RATE_HZ)].tolist()
    return math.sqrt(sum(map(mul, some, some)) / len(some)) / _FULL_SCALE


def threshold_loudness(threshold: float) -> float:
    """Return the loudness of the quietest speech: 0.01 for the default, and fourfold for each 0.24 more."""
    level = threshold if threshold < _LEMONADE_THRESHOLDS else 10 ** (2.5 * threshold - 3.25)
    return max(_LEAST_LOUDNESS, level)


class SpeechDetector:
    """The state: whether there is speech, and for how many frames the sound has contradicted that."""

    def __init__(self, detection: TurnDetection) -> None:
        """Begin in silence."""
        self._threshold = threshold_loudness(detection.threshold)
        self._silence_frames = max(1, math.ceil(detection.silence_duration_ms / FRAME_MS))
        self._contradicting = 0
        self._noise = 0.0
        self.speaking = False

    def take(self, level: float) -> bool:
        """Take the loudness of the next frame; return whether speech begins or ends with it."""
        self._noise = min(level, max(self._noise, _LEAST_LOUDNESS) * _NOISE_GROWTH)
        least = max(self._threshold, self._noise * _NOISE_FACTOR) * (_QUIETER if self.speaking else 1.0)
        self._contradicting = 0 if (level >= least) == self.speaking else self._contradicting + 1
        if self._contradicting < (self._silence_frames if self.speaking else START_FRAMES):
            return False
        self.reset(speaking=not self.speaking)
        return True

    def reset(self, *, speaking: bool = False) -> None:
        """Go on in this state. What was learned about the noise stays."""
        self.speaking, self._contradicting = speaking, 0


def frame_bytes(rate: int) -> int:
    """Return the bytes of a frame."""
    return rate * FRAME_MS // 1000 * SAMPLE_BYTES
