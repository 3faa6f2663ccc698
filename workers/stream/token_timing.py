"""When the tokens of one generation came: noted as they come, settled at its end. Pure.

Noting costs one clock reading a piece, which its owner makes anyway, and four bytes a token.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from protocol.messages.events import MAX_TOKEN_TIMES


class EngineSpan(NamedTuple):
    """What an engine itself says of its time, in seconds."""

    prompt: float
    decode: float


class TokenTimes(NamedTuple):
    """What a generation's clock came to, in seconds."""

    first: float
    """From the request to the first token."""
    decode: float
    """From the end of the prompt's processing to the last token: the sum of ``each``, were it not cut."""
    each: bytes
    """See :attr:`protocol.messages.events.Outcome.token_times`."""


class TokenTiming:
    """One generation's clock."""

    __slots__ = ("_begun", "_first", "_gaps", "_latest")

    def __init__(self, begun: float) -> None:
        """The request was sent at ``begun``."""
        self._begun = self._latest = begun
        self._first = 0.0
        self._gaps = array("f")

    def came(self, tokens: int, now: float) -> bool:
        """Tokens came, those of one piece at once; return whether they are the first."""
        begins = not self._first
        if begins:
            self._first = self._latest = now
            tokens -= 1
        if tokens and len(self._gaps) < MAX_TOKEN_TIMES:
            gap = (now - self._latest) / tokens
            if tokens == 1:
                self._gaps.append(gap)
            else:
                self._gaps.extend([gap] * tokens)
        self._latest = now
        return begins

    def settled(self, output: int, now: float, engine: EngineSpan | None, watched: bool) -> TokenTimes:
        """Return a time for each of ``output`` tokens, now that the generation has ended.

        The first token's own time is what went by after the prompt was processed.  Tokens that never showed (the
        last one ends the answer, others are halves of a character) share what went by after the last that did.
        If we have not ``watched`` every token, or none showed, the engine's own word counts.
        """
        if not output:
            return TokenTimes(0.0, 0.0, b"")
        total = now - self._begun
        if not watched or not self._first:
            told = engine or EngineSpan(total, total)
            return TokenTimes(told.prompt, told.decode, _even(told.decode, output))
        first = self._first - self._begun
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
        else:  # pieces that are no tokens, such as the syntax of a tool call
            surplus = sum(times[output:])
            del times[output:]
            times[-1] += surplus
        return TokenTimes(first, lead + shown + rest, times.tobytes())


def _even(seconds: float, tokens: int) -> bytes:
    return array("f", [seconds / tokens] * min(tokens, MAX_TOKEN_TIMES)).tobytes()
