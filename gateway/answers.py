"""The blocking side of a request, for the dialects: a whole answer, or a stream of pieces.

Both watch the client's connection while they wait: one that hangs up stops its generation at once.  Every
failure arrives as :class:`~protocol.failures.LemonbusError`; let it pass, ``faults.py`` answers it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import msgspec

from gateway.exchange import Exchange, Question
from gateway.hangup import Watch
from gateway.house import House
from protocol.events import Outcome
from protocol.failures import Code, Failure

__all__ = ["Question", "Stream", "Whole", "stream", "whole"]

Environ = dict[str, Any]


class Whole(NamedTuple):
    """An answer that was not streamed."""

    body: bytes
    """The engine's JSON, with ``model`` as the client called it."""
    model: str
    """The registered name."""
    outcome: Outcome


def whole(house: House, env: Environ, question: Question) -> Whole:
    """Ask, wait for the end, return the answer. ``env`` is ``req.env``; ``question.stream`` must be false.

    Raises ``LemonbusError`` for everything else that can come of it.
    """
    with Stream(house, env, question) as answer:
        return Whole(answer.rest(), answer.model, answer.outcome)


def stream(house: House, env: Environ, question: Question) -> Stream:
    """Ask, and return once the first piece is there, or after ``settings.header_silence`` without one.

    A failure before that raises ``LemonbusError``, so that it gets its own HTTP status.  Put the result into
    ``resp.stream`` (wrapped by the dialect); whoever iterates must call :meth:`Stream.close` at the end, as
    gunicorn does with ``resp.stream``.
    """
    answer = Stream(house, env, question)
    try:
        answer.begin()
    except BaseException:
        answer.close()
        raise
    return answer


class Stream:
    """Iterate: each item is one or more whole server-sent events, as OpenAI's dialect writes them, coalesced.

    An empty item means that ``settings.header_silence`` seconds passed in silence: write your dialect's ping.
    The iteration ends normally only if the generation really did (then write the end marker).  Otherwise it
    raises ``LemonbusError`` whose failure has ``model`` and ``tokens_sent``: write the in-band error.  After
    ``Code.CANCELLED`` or ``Code.CLIENT_TOO_SLOW`` nobody is there to write to: let it pass.
    """

    def __init__(self, house: House, env: Environ, question: Question) -> None:
        """Send the question."""
        self._house = house
        self._first = b""
        self._exchange: Exchange = house.ask_for(question)
        self._watch = Watch(env, self._hung_up)
        self._exchange.cut = self._watch.cut

    @property
    def model(self) -> str:
        """The registered name of the model, once granted; before that what the client called it."""
        return self._exchange.model

    @property
    def tokens(self) -> int:
        """How many tokens were handed on so far."""
        return self._exchange.inbox.tokens

    @property
    def finished(self) -> bool:
        """Whether the generation ended and all of it was handed on: the iteration has nothing more."""
        return self._exchange.outcome is not None and self._exchange.inbox.empty

    @property
    def outcome(self) -> Outcome:
        """What it cost. Only after the iteration ended normally."""
        outcome = self._exchange.outcome
        if outcome is None:
            raise RuntimeError("the generation has not ended")
        return outcome

    def begin(self) -> None:
        """Wait for the first piece, the end, or ``settings.header_silence`` seconds."""
        self._first = self._next(self._house.settings.header_silence) or b""

    def rest(self) -> bytes:
        """Wait for the end without handing anything on before it, so that it can be retried up to there."""
        exchange = self._exchange
        while not exchange.over:
            exchange.bell.wait(None)
        if exchange.failure is not None:
            raise self._told().raised()
        return self._first + exchange.inbox.take()

    def _next(self, seconds: float | None) -> bytes | None:
        exchange = self._exchange
        while True:
            if exchange.failure is not None and (exchange.failure.code in _NOBODY or exchange.inbox.empty):
                raise self._told().raised()
            piece = exchange.inbox.take()
            if piece:
                return piece
            if exchange.outcome is not None:
                return None
            if exchange.failure is None and not exchange.bell.wait(seconds):
                return b""

    def _told(self) -> Failure:
        failure = self._exchange.failure
        assert failure is not None  # noqa: S101 - the caller looked
        return msgspec.structs.replace(failure, tokens_sent=self.tokens)

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> bytes:
        if self._first:
            piece, self._first = self._first, b""
            return piece
        more = self._next(self._house.settings.header_silence)
        if more is None:
            raise StopIteration
        return more

    def _hung_up(self) -> None:
        exchange = self._exchange
        exchange.abandon(Code.CANCELLED)
        exchange.bell.ring()

    def close(self) -> None:
        """Stop watching; stop the engine if the generation has not ended. Idempotent."""
        self._watch.close()
        self._exchange.abandon(Code.CANCELLED)
        self._house.release(self._exchange)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_NOBODY = frozenset({Code.CANCELLED, Code.CLIENT_TOO_SLOW})
