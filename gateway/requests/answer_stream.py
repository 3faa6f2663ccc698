"""The blocking side of an inference request, for the API families: a whole answer, or a stream of pieces.

Both watch the client's connection while they wait: if the client hangs up, its generation stops at once. Every failure
arrives as :class:`~protocol.failures.LemonbusError`. Do not catch it: ``gateway/http/errors.py`` answers it.
"""

from __future__ import annotations

import time
from typing import Any, Final, NamedTuple, Self

import msgspec

from gateway.http.client_disconnect import HangUpWatch
from gateway.http.request_context import request_context
from gateway.requests.exchange import RequestExchange
from gateway.requests.inference_request import InferenceRequest
from gateway.requests.list_pieces import ListPieces, PieceEvents, joined_answer
from gateway.requests.preparation import prepared
from gateway.requests.request_session import RequestSession
from protocol.failures import CLIENT_LEFT_CODES, Code, Failure, LemonbusError
from protocol.messages.events import Outcome, total_outcome

Environ = dict[str, Any]
RATE_LIMITS_WAIT_S: Final = 0.5
"""Seconds to wait for these headers; if the supervisor has died meanwhile, the answer comes without them."""


class WholeAnswer(NamedTuple):
    """A whole answer."""

    body: bytes
    """The engine's JSON, with the client's name for the ``model``."""
    model: str
    """The registered name."""
    outcome: Outcome


def complete(session: RequestSession, env: Environ, request: InferenceRequest) -> WholeAnswer:
    """Run the request and return its answer. ``env`` is ``req.env``; ``request.stream`` must be false.

    Raises ``LemonbusError`` for every other outcome.
    """
    with AnswerStream(session, env, request) as answer:
        return answer.whole()


def stream(session: RequestSession, env: Environ, request: InferenceRequest, *, patient: bool = False) -> AnswerStream:
    """Run the request, and return once the first piece is there, or after ``settings.header_silence`` without one.

    ``patient``: not before the first piece, because the form of the answer has nothing that could be written until then.
    A failure before that raises ``LemonbusError``, so that it gets its own HTTP status. Put the result into
    ``resp.stream`` (wrapped by the API family). The caller must call :meth:`AnswerStream.close` at the end, as the
    server does with ``resp.stream``.
    """
    answer = AnswerStream(session, env, request)
    try:
        answer.begin(patient=patient)
    except BaseException:
        answer.close()
        raise
    return answer


class AnswerStream:
    """Iterating yields one or more whole server-sent events at a time, in OpenAI's form, coalesced.

    An empty item means ``settings.header_silence`` seconds of silence: write a ping. The iteration ends normally only
    if the generation really did: then write the end marker. Otherwise it raises ``LemonbusError``, whose failure has
    ``model`` and ``tokens_sent``: write the error into the stream. After ``Code.CANCELLED`` or ``Code.CLIENT_TOO_SLOW``
    there is no client to write to: do not catch it.
    """

    _first = b""
    """The first piece, until it is taken."""
    _events: PieceEvents | None = None
    """Joins the events of a request that was cut."""
    _earlier: Outcome | None = None
    """What the finished pieces cost, without the times of their tokens."""
    _tokens = 0
    """Tokens of these pieces."""
    _cancelled = False

    def __init__(self, session: RequestSession, env: Environ, request: InferenceRequest) -> None:
        """Prepare the request and send it, or its first piece. Raises what :func:`prepared` raises."""
        self._session = session
        self._context = context = request_context(env)
        self._request = request = prepared(session, env, request)
        self._pieces = pieces = ListPieces(request.endpoint, request.body, request.weight)
        self._piece = first = pieces.first()
        if pieces.left:
            self._events = PieceEvents(request.endpoint)
            # Only the last piece has the idle time, which begins after the whole request.
            request = msgspec.structs.replace(request, body=first.body, weight=first.weight, ttl=None, more=True)
        self._exchange = exchange = context.exchange = self._started(request)
        if request.weight:
            context.inference = context.inference or request.endpoint
        self._watch = watch = HangUpWatch(env, self.cancel)
        exchange.cut = watch.cut

    def _started(self, request: InferenceRequest) -> RequestExchange:
        context = self._context
        reservation = context.take_reservation()
        try:
            number = reservation.number if reservation is not None else 0
            return self._session.start_exchange(request, context, number)
        finally:
            if reservation is not None:
                reservation.close()

    def _advance(self) -> bool:
        """Send the next piece when the present one has ended; return whether there was one."""
        if not self._pieces.left:
            return False
        seconds = self._ended_outcome().total_s
        earlier, tokens = msgspec.structs.replace(self.outcome, token_times=b""), self.tokens
        self._session.release(self._exchange)
        self._piece = piece = self._pieces.following(seconds)
        request = msgspec.structs.replace(
            self._request,
            model=self._request.model or self.model,  # an unnamed model stays the one that was chosen
            body=piece.body,
            weight=piece.weight,
            ttl=None if self._pieces.left else self._request.ttl,
            earlier=earlier,
            more=self._pieces.left,
            after=self._exchange.number,
            reserved_tokens=max(0, self._request.reserved_tokens - earlier.prompt_tokens - earlier.output_tokens),
        )
        context = self._context
        try:
            exchange = self._session.start_exchange(request, context, 0)
        except LemonbusError as problem:
            raise self._with_tokens(problem.failure).raised() from None
        self._exchange = context.exchange = exchange
        self._earlier, self._tokens = earlier, tokens
        exchange.cut = self._watch.cut
        if self._cancelled:  # while other greenlets ran
            self.cancel()
        return True

    @property
    def model(self) -> str:
        """The registered name of the model once granted; before that, the client's name for it."""
        return self._exchange.model

    @property
    def tokens(self) -> int:
        """Tokens that the iteration has returned so far."""
        return self._tokens + self._exchange.inbox.tokens

    @property
    def finished(self) -> bool:
        """Whether the generation has ended and all of it was returned."""
        return self._exchange.outcome is not None and self._exchange.inbox.empty and not self._pieces.left

    @property
    def outcome(self) -> Outcome:
        """What it cost. Only available after the iteration has ended normally."""
        outcome = self._ended_outcome()
        return outcome if self._earlier is None else total_outcome([self._earlier, outcome])

    def _ended_outcome(self) -> Outcome:
        outcome = self._exchange.outcome
        if outcome is None:
            raise RuntimeError("the generation has not ended")
        return outcome

    def begin(self, *, patient: bool = False) -> None:
        """Wait for the first piece or the end, and unless ``patient`` for at most ``settings.header_silence`` seconds."""
        self._first = self._next(None if patient else self._session.settings.header_silence) or b""
        self._wait_for_rate_limits()

    def _wait_for_rate_limits(self) -> None:
        """Wait for the headers' values about a key's limits: they were sent before any event, but by another process."""
        end = time.monotonic() + RATE_LIMITS_WAIT_S
        while self._exchange.rate_limits_due and (left := end - time.monotonic()) > 0:
            self._exchange.waker.wait(left)

    def ended(self, seconds: float | None = None) -> bool:
        """Wait for the end, at most ``seconds``; return whether it has come.

        Nothing is passed on before it, so the request can be retried until then.
        """
        exchange = self._exchange
        end = None if seconds is None else time.monotonic() + seconds
        while not exchange.over:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return False
            exchange.waker.wait(left)
        self._wait_for_rate_limits()
        return True

    def whole(self) -> WholeAnswer:
        """Wait for the end and return the answer; raises ``LemonbusError`` for every other outcome."""
        body = self._whole_piece()
        if self._pieces.left:
            answers = [(self._piece.first, body)]
            while self._advance():
                answers.append((self._piece.first, self._whole_piece()))
            body = joined_answer(self._request.endpoint, self._request.body, answers)
        return WholeAnswer(body, self.model, self.outcome)

    def _whole_piece(self) -> bytes:
        self.ended()
        if self._exchange.failure is not None:
            raise self._failure_to_raise().raised()
        return self._exchange.inbox.take()

    def _next(self, seconds: float | None) -> bytes | None:
        while True:
            exchange = self._exchange
            if exchange.failure is not None and (exchange.failure.code in CLIENT_LEFT_CODES or exchange.inbox.empty):
                raise self._failure_to_raise().raised()
            piece = exchange.take()
            if piece and self._events is not None:
                piece = self._events.events(piece, self._piece.first, last=not self._pieces.left)
            if piece:
                return piece
            if exchange.outcome is not None and exchange.inbox.empty:
                if self._advance():
                    continue
                return None
            if exchange.failure is None and not exchange.waker.wait(seconds):
                return b""

    def _failure_to_raise(self) -> Failure:
        failure = self._exchange.failure
        assert failure is not None  # noqa: S101 - the caller looked
        return self._with_tokens(failure)

    def _with_tokens(self, failure: Failure) -> Failure:
        return msgspec.structs.replace(failure, tokens_sent=self.tokens, model=failure.model or self.model)

    def __iter__(self) -> AnswerStream:
        return self

    def __next__(self) -> bytes:
        if self._first:
            piece, self._first = self._first, b""
            return piece
        more = self._next(self._session.settings.header_silence)
        if more is None:
            raise StopIteration
        return more

    def cancel(self) -> None:
        """End the answer from the hub, as if its client had hung up."""
        self._cancelled = True
        exchange = self._exchange
        exchange.abandon(Code.CANCELLED)
        exchange.waker.wake()

    def close(self) -> None:
        """Stop watching; stop the engine if the generation has not ended. Idempotent."""
        self._context.outcome = self.outcome if self._exchange.outcome is not None else None
        self._context.answered = self._exchange.outcome is not None and not self._pieces.left
        self._watch.close()
        self._exchange.abandon(Code.CANCELLED)
        self._session.release(self._exchange)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
