"""When the tokens of one generation arrived: recorded as they arrive, evaluated at the end. Pure.

Recording costs one clock reading per piece, which the caller makes anyway, and four bytes per token.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from protocol.messages.events import MAX_TOKEN_TIMES


class EngineSpan(NamedTuple):
    """The times that an engine reports itself, in seconds."""

    prompt: float
    decode: float

    def merged_with(self, other: EngineSpan) -> EngineSpan:
        """Return the span of two choices that were computed in parallel."""
        return EngineSpan(max(self.prompt, other.prompt), max(self.decode, other.decode))

    def followed_by(self, other: EngineSpan) -> EngineSpan:
        """Return the span of two choices that were computed one after the other; each reports the same prompt."""
        return EngineSpan(max(self.prompt, other.prompt), self.decode + other.decode)


class EngineMark(NamedTuple):
    """An engine's progress at one moment, by its own clock: ``tokens`` so far, ``seconds`` after the prompt."""

    tokens: int
    seconds: float


class TokenTimes(NamedTuple):
    """The times of a finished generation, in seconds."""

    first: float
    """From the request to the first token."""
    decode: float
    """From the end of the prompt's processing to the last token: the sum of ``each`` before it was cut."""
    each: bytes
    """See :attr:`protocol.messages.events.Outcome.token_times`."""


class TokenTiming:
    """Records one generation."""

    __slots__ = ("_first", "_gaps", "_latest", "_sent_at")

    def __init__(self, sent_at: float) -> None:
        """Start at the time when the request was sent."""
        self._sent_at = self._latest = sent_at
        self._first = 0.0
        self._gaps = array("f")

    def add(self, tokens: int, now: float) -> bool:
        """Record the tokens of one piece, which share its time; return whether they are the first."""
        is_first = not self._first
        if is_first:
            self._first = self._latest = now
            tokens -= 1
        if tokens and len(self._gaps) < MAX_TOKEN_TIMES:
            gap = (now - self._latest) / tokens
            if tokens == 1:
                self._gaps.append(gap)
            else:
                self._gaps.extend([gap] * tokens)
        self._latest = now
        return is_first

    @property
    def first_at(self) -> float:
        """When the first token came; 0: none has."""
        return self._first

    def finish(
        self, output: int, now: float, engine: EngineSpan | None, watched: bool, marks: Sequence[EngineMark] = ()
    ) -> TokenTimes:
        """Return a time for each of ``output`` tokens. Call this when the generation has ended.

        The time of the first token begins when the prompt was processed. Tokens that never showed (the last one ends
        the response, others are parts of a character) share the time after the last token that did. If not every token
        was ``watched``, or none showed, the engine's own figures are used: the tokens between two of its ``marks``
        share the time between them, and all share its sum if it made none. Without a sum, no token has a time, and that
        of the first is unknown, 0.
        """
        if not output:
            return TokenTimes(0.0, 0.0, b"")
        total = now - self._sent_at
        if not watched or not self._first:
            if engine is None:
                return TokenTimes(0.0, total, b"")
            count = min(output, MAX_TOKEN_TIMES)  # an engine says how many there are
            times = _times_between(marks, count) if marks else array("f", [max(0.0, engine.decode) / output]) * count
            return TokenTimes(engine.prompt, engine.decode, times.tobytes())
        first = self._first - self._sent_at
        shown = self._latest - self._first
        lead = max(0.0, first - engine.prompt) if engine else shown / max(1, len(self._gaps))
        times = array("f", [lead])
        times.extend(self._gaps)
        hidden = output - len(times)
        rest = 0.0
        if output > MAX_TOKEN_TIMES:
            del times[MAX_TOKEN_TIMES:]
        elif hidden > 0:
            rest = now - self._latest
            times.extend([rest / hidden] * hidden)
        else:  # pieces that are not tokens, such as the syntax of a tool call
            surplus = sum(times[output:])
            del times[output:]
            times[-1] += surplus
        return TokenTimes(first, lead + shown + rest, times.tobytes())


def _times_between(marks: Sequence[EngineMark], output: int) -> array[float]:
    """Return the times of ``output`` tokens. Those after the last mark get the average of those before it."""
    times = array("f")
    last = EngineMark(0, 0.0)
    for mark in marks:
        count = min(mark.tokens, output) - last.tokens
        if count > 0:
            times.extend([max(0.0, mark.seconds - last.seconds) / count] * count)
            last = mark
    times.extend([last.seconds / max(1, last.tokens)] * (output - len(times)))
    return times
