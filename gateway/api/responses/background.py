"""Responses that run in the background, as greenlets of this process. The supervisor stores their results.

Invariants:

* The supervisor knows of a response before its client does.
* The call that stored it stays open while it runs: by it the supervisor cancels it, and learns that this process gave it up.
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Any, Final

import gevent
import msgspec

from gateway.api.responses.background_stream import EventFeed
from gateway.api.responses.output.response_object import ResponseBuilder, whole_response
from gateway.api.responses.store_client import owner_of
from gateway.api.responses.stored_form import with_events
from gateway.bus.calls import SupervisorCall
from gateway.bus.session import SupervisorSession
from gateway.http.request_context import CONTEXT_KEY, RequestContext, request_context
from gateway.internal_errors import INTERNAL_ERRORS, INTERNAL_FAILURE
from gateway.requests.answer_stream import AnswerStream
from gateway.requests.inference_request import InferenceRequest
from protocol.failures import CLIENT_LEFT_CODES, Code, Failure, LemonbusError
from protocol.messages.responses import FinishResponse, StoredTurn, StoreResponse
from protocol.wire import envelope

_EVENTS_PART: Final = 32
"""How much of the memory for responses the events of one response may take."""
MAX_RUNS: Final = 64
"""How many background responses one process runs."""
Response = dict[str, Any]
Run = Callable[[Callable[[InferenceRequest], Response]], Response]
"""Asks the engine, again if necessary, and returns the response."""


def _without_connection(env: dict[str, Any]) -> dict[str, Any]:
    """Return the environment of a request whose client may leave: its id, its key, its rights, and what it is counted as.

    With it, the response is stored however it ends, even after its key was revoked.
    """
    given = request_context(env)
    context = RequestContext(given.label)
    context.api_key = given.api_key
    context.route, context.model = given.route, given.model
    context.download_refusal = given.download_refusal
    return {CONTEXT_KEY: context}


class RunningResponses:
    """The number and size of each API key's running responses. One key may have half, so that others can run some."""

    def __init__(self, most_bytes: int) -> None:
        """Begin without any."""
        self._most_bytes = most_bytes
        self._sizes: dict[str, list[int]] = {}
        """API key → the approximate bytes of its running requests."""

    def check(self, api_key: str, size: int) -> None:
        """Raise ``overloaded`` if another one of ``size`` bytes may not run. A single one always may."""
        own = self._sizes.get(api_key, [])
        everyone = [each for sizes in self._sizes.values() for each in sizes]
        for running, share in ((everyone, 1), (own, 2 if api_key else 1)):
            most, most_bytes = MAX_RUNS // share, self._most_bytes // share
            if len(running) >= most or (running and sum(running) + size > most_bytes):
                raise Failure(Code.OVERLOADED, "too many responses run in the background", retry_after=1).raised()

    def add(self, api_key: str, size: int) -> None:
        """Note that a response runs."""
        self._sizes.setdefault(api_key, []).append(size)

    def remove(self, api_key: str, size: int) -> None:
        """Note that it has ended."""
        own = self._sizes[api_key]
        own.remove(size)
        if not own:
            del self._sizes[api_key]


class BackgroundRuns:
    """The responses that this process runs in the background."""

    def __init__(self, session: SupervisorSession) -> None:
        """Begin without any."""
        self._session = session
        self._running = RunningResponses(session.settings.queue_bytes)
        self._feeds: dict[str, EventFeed] = {}
        """The events of streamed responses, by response id."""

    def feed(self, response_id: str) -> EventFeed | None:
        """Return the events of a streamed response that this process runs."""
        return self._feeds.get(response_id)

    def start(
        self,
        env: dict[str, Any],
        builder: ResponseBuilder,
        turn: StoredTurn,
        previous: str,
        run: Run,
        feed: EventFeed | None = None,
    ) -> None:
        """Store a response that runs from now on, and return it. ``env`` is ``req.env``.

        ``feed``: gets the events of a streamed response. Raises ``overloaded`` if too many run, or the reason why it
        cannot be stored.
        """
        size, api_key = len(turn.input), owner_of(env)
        self._running.check(api_key, size)
        given, env = request_context(env), _without_connection(env)
        withdrawal = given.withdrawal  # afterwards the connection may be released
        call = self._session.start_call(
            env,
            lambda number: StoreResponse(number, builder.id, previous, running=True, key=api_key),
            endless=True,
            payload=envelope.pack_payload(turn),
        )
        try:
            call.next()
        except BaseException:
            call.close()
            raise
        context = request_context(env)
        context.reservation, context.withdrawal = given.take_reservation(), withdrawal
        given.in_background = True
        self._running.add(api_key, size)
        gevent.spawn(self._run, env, call, builder, run, feed).link(lambda _: self._running.remove(api_key, size))

    def _run(
        self, env: dict[str, Any], call: SupervisorCall, builder: ResponseBuilder, run: Run, feed: EventFeed | None
    ) -> None:
        last = b""
        if feed is not None:
            self._feeds[builder.id] = feed
        try:
            response, failure = self._response(env, call, builder, run, feed)
            self._count(request_context(env), failure)
            end = b""
            if feed is not None:
                end = feed.writer.end() if failure is None else feed.writer.error(failure, call.label)
            if response is not None:
                most = self._session.settings.response_store_bytes // _EVENTS_PART
                kept = with_events(response, feed.events_with(end), most) if feed is not None else response
                ended = _without_connection(env)
                payload = msgspec.json.encode(kept)
                self._session.call(ended, lambda number: FinishResponse(number, builder.id), NoneType, payload)
            last = end
        except LemonbusError as problem:
            # The server stops: closing the call says that the response is lost.
            last = feed.writer.error(problem.failure, call.label) if feed is not None else b""
        except Exception as problem:  # noqa: BLE001 - logged and counted; closing the call says that the response is lost
            INTERNAL_ERRORS.log(problem, "a response was not stored", request_id=call.label)
        finally:
            call.close()
            self._feeds.pop(builder.id, None)
            request_context(env).drop_reservation()
            if feed is not None:
                feed.end(last)

    def _count(self, context: RequestContext, failure: Failure | None) -> None:
        """Count the end of a request; the connection that asked for it was answered, or closed long ago."""
        counts, key, context.failure = self._session.request_counts, context.api_key, failure
        counts.ended(context, context.route, 200, context.elapsed(), complete=True)
        if failure is not None:
            name, answered = key.name if key is not None else "", context.answered
            counts.failed(context.route, name, context.model, failure.code.value, answered=answered)

    def _response(
        self, env: dict[str, Any], call: SupervisorCall, builder: ResponseBuilder, run: Run, feed: EventFeed | None
    ) -> tuple[Response | None, Failure | None]:
        """Return the response when it has ended (None if it was cancelled), and why it failed, if it did."""

        def ask(request: InferenceRequest) -> Response:
            with AnswerStream(self._session, env, request) as answer:
                call.on_failure = answer.cancel
                call.next(0)  # raises if it was cancelled meanwhile
                if feed is None:
                    return whole_response(builder, answer.whole())
                answer.begin()  # raises what a shorter request may avoid
                return _streamed(answer, feed)

        try:
            return run(ask), None
        except _BrokenStreamError as problem:
            failure = problem.failure
        except LemonbusError as problem:
            failure = problem.failure
        except Exception as problem:  # noqa: BLE001 - the response has failed, and says so
            INTERNAL_ERRORS.log(problem, "a response failed", request_id=call.label)
            failure = INTERNAL_FAILURE
        if failure.code in CLIENT_LEFT_CODES:
            return None, Failure(Code.CANCELLED, "the response was cancelled")
        return builder.failed(failure, call.label), failure


class _BrokenStreamError(Exception):
    """A stream broke after the client may have seen a part of it, so it is not requested again."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def _streamed(answer: AnswerStream, feed: EventFeed) -> Response:
    """Pass on the events of an answer, except for its end, and return the response."""
    try:
        for events in answer:
            feed.put(feed.writer.events(events) if events else feed.writer.ping())
    except LemonbusError as problem:
        raise _BrokenStreamError(problem.failure) from problem
    return feed.writer.response()
