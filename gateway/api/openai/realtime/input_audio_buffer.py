"""The input audio buffer of a session: what has come and belongs to no turn yet. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from gateway.api.openai.realtime.audio_format import SAMPLE_BYTES, AudioFormat
from gateway.api.openai.realtime.speech_detection import (
    START_FRAMES,
    SpeechDetector,
    TurnDetection,
    frame_bytes,
    loudness,
)
from protocol.failures import invalid

LEAST_TURN_MS: Final = 100
"""Less than this cannot be committed, as with OpenAI."""
LONGEST_SPEECH_S: Final = 60
"""Seconds of speech without a pause after which a turn ends anyway."""


class SpeechStarted(NamedTuple):
    """Speech has begun. ``at_ms``: where its turn begins in the audio of the session."""

    at_ms: int


class SpeechStopped(NamedTuple):
    """Speech has ended. ``at_ms``: where its turn ends."""

    at_ms: int


class FoundTurn(NamedTuple):
    """The samples of a turn, as 16-bit PCM. They are not in the buffer any more."""

    samples: bytes


Change = SpeechStarted | SpeechStopped | FoundTurn


class InputAudioBuffer:
    """The buffer. With turn detection it finds the turns, and keeps only what may belong to the next one."""

    def __init__(self, form: AudioFormat, detection: TurnDetection | None, most_bytes: int) -> None:
        """Begin empty. ``most_bytes``: of 16-bit PCM, in the buffer."""
        self._most_bytes = most_bytes
        self._audio = bytearray()
        self._rest = b""
        """Half of a sample, whose other half comes with the next audio."""
        self._dropped_ms = 0.0
        """What was dropped before the buffer began."""
        self._examined = 0
        """Bytes of the buffer in which speech was looked for."""
        self._format, self._detection = form, detection
        self._detector: SpeechDetector | None = None
        self.configure(form, detection)

    def configure(self, form: AudioFormat, detection: TurnDetection | None) -> None:
        """Use another format, for which the buffer is emptied, or another way of finding turns."""
        if form != self._format:
            self.clear()
            self._format, self._rest = form, b""
        self._detection = detection
        self._detector = SpeechDetector(detection) if detection is not None else None
        self._examined = len(self._audio)

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self._audio)

    @property
    def step_bytes(self) -> int:
        """Bytes of the format that are a second: looking for speech in more at once would keep others waiting."""
        return self._format.rate * (SAMPLE_BYTES if self._format.is_pcm else 1)

    def append(self, data: bytes) -> Iterator[Change]:
        """Add audio, and yield what it changes.

        Raises ``invalid_request`` if the buffer is full; then nothing is added.
        """
        if self._format.is_pcm:
            data = self._rest + data
            whole = len(data) - len(data) % SAMPLE_BYTES
            data, self._rest = data[:whole], data[whole:]
        samples = self._format.decode(data)
        if self._detector is None and len(self._audio) + len(samples) > self._most_bytes:
            seconds = self._most_bytes // (SAMPLE_BYTES * self._format.rate)
            message = f"the input audio buffer is full ({seconds} s): commit it more often, or turn on turn detection"
            raise invalid(message, "audio")
        self._audio += samples
        if self._detector is not None:
            yield from self._find_turns(self._detector)

    def commit(self) -> bytes:
        """Empty the buffer, and return what was in it; raises ``invalid_request`` if that is too little."""
        if self._ms(len(self._audio)) < LEAST_TURN_MS:
            present = round(self._ms(len(self._audio)))
            raise invalid(f"the input audio buffer has {present} ms of audio; a turn has at least {LEAST_TURN_MS} ms")
        return self._take(len(self._audio))

    def clear(self) -> None:
        """Empty the buffer."""
        self._take(len(self._audio))

    def _find_turns(self, detector: SpeechDetector) -> Iterator[Change]:
        frame, rate = frame_bytes(self._format.rate), self._format.rate
        longest = min(self._most_bytes, LONGEST_SPEECH_S * rate * SAMPLE_BYTES)
        while self._examined + frame <= len(self._audio):
            with memoryview(self._audio) as view:
                level = loudness(view[self._examined : self._examined + frame].cast("h"), rate)
            self._examined += frame
            changed = detector.take(level)
            if changed and detector.speaking:
                self._drop_before_speech(frame)
                yield SpeechStarted(round(self._dropped_ms))
            elif changed or (detector.speaking and self._examined >= longest):
                yield SpeechStopped(round(self._dropped_ms + self._ms(self._examined)))
                yield FoundTurn(self._take(self._examined))
        if not detector.speaking:
            self._drop_before_speech(frame)

    def _drop_before_speech(self, frame: int) -> None:
        """Drop what is too early to belong to a turn that begins with the latest loud frames."""
        assert self._detection is not None  # noqa: S101 - the caller looked
        padding = self._detection.prefix_padding_ms * self._format.rate // 1000 * SAMPLE_BYTES
        early = self._examined - START_FRAMES * frame - padding
        if early > 0:
            self._drop(early)

    def _take(self, size: int) -> bytes:
        """Return the first bytes of the buffer, and drop them: the next turn begins in silence."""
        taken = bytes(memoryview(self._audio)[:size])
        self._drop(size)
        if self._detector is not None:
            self._detector.reset()
        return taken

    def _drop(self, size: int) -> None:
        self._dropped_ms += self._ms(size)
        del self._audio[:size]
        self._examined = max(0, self._examined - size)

    def _ms(self, size: int) -> float:
        return 1000 * size / (SAMPLE_BYTES * self._format.rate)
