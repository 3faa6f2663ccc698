"""Speech from text: its endpoint, the forms of its sound, and the limits of a request. Pure.

The request in the internal format has OpenAI's fields ``input``, ``voice``, ``speed`` and ``response_format``. The answer is the
sound itself: see ``BYTE_STREAMS`` of :mod:`protocol.messages.work`.
"""

from __future__ import annotations

from typing import Final

SPEECH: Final = "audio/speech"
MEDIA_TYPES: Final = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg; codecs=opus",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
"""``response_format`` → its media type. ``pcm`` is 16 bits, little-endian, one channel, 24,000 samples a second."""
DEFAULT_FORMAT: Final = "mp3"
SAMPLE_RATE: Final = 24_000
"""Samples a second of every form."""
MAX_INPUT_LENGTH: Final = 16_384
"""Characters of a text: about twenty minutes of speech. OpenAI takes 4,096."""
MAX_SOUND_S: Final = 1_800
"""Seconds of sound that one request may make."""
MIN_SPEED: Final = 0.25
MAX_SPEED: Final = 4.0
MAX_VOICE_LENGTH: Final = 256
USAGE_TRAILER: Final = "X-Usage"
"""The trailer of an engine's answer in bytes, which has no place for the counts: a JSON object as in the ``usage`` of a chunk."""
