"""Responses that run in the background: greenlets of this process, whose ends the supervisor stores.

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

from gateway.api.common.stream_writer import CLIENT_LEFT_CODES
from gateway.api.responses.response_object import ResponseBuilder
from gateway.api.responses.stored import key_name
from gateway.api.responses.whole_response import whole_response
from gateway.bus.calls import SupervisorCall
from gateway.bus.session import SupervisorSession
from gateway.http.request_context import CONTEXT_KEY, RequestContext, request_context
from gateway.internal_errors import INTERNAL_ERRORS, INTERNAL_FAILURE
from gateway.requests.inference import AnswerStream, InferenceRequest, WholeAnswer
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.responses import FinishResponse, StoredTurn, StoreResponse
from protocol.wire import envelope

MAX_RUNS: Final = 64
"""Responses that one process runs in the background."""
Ask = Callable[[InferenceRequest], WholeAnswer]
Run = Callable[[Ask], WholeAnswer]
"""Asks the engine, again if it must, and returns the answer."""


def _without_connection(env: dict[str, Any]) -> dict[str, Any]:
    """Return the environment of a request whose client may leave: its id, its key and its rights."""
    given = request_context(env)
    context = RequestContext(given.label)
    context.api_key = given.api_key
    context.download_refusal = given.download_refusal
    return {CONTEXT_KEY: context}


class BackgroundRuns:
    """The responses that this process runs in the background."""

    def __init__(self, session: SupervisorSession) -> None:
        """Begin without any."""
        self._session = session
        self._running = 0
        self._bytes = 0
        """Bytes of their requests, about."""

    def start(self, env: dict[str, Any], builder: ResponseBuilder, turn: StoredTurn, previous: str, run: Run) -> None:
        """Store a response that runs from now on, and return; ``env`` is ``req.env``.

        Raises ``overloaded`` if too many run, and why it cannot be stored.
        """
        size = len(turn.input)
        if self._running >= MAX_RUNS or (self._running and self._bytes + size > self._session.settings.queue_bytes):
            raise Failure(Code.OVERLOADED, "too many responses run in the background", retry_after=1).raised()
        env = _without_connection(env)
        key = key_name(env)
        call = self._session.start_call(
            env,
            lambda number: StoreResponse(number, builder.id, previous, running=True, key=key),
            endless=True,
            payload=envelope.pack_payload(turn),
        )
        try:
            call.next()
        except BaseException:
            call.close()
            raise
        self._running += 1
        self._bytes += size
        gevent.spawn(self._run, env, call, builder, run).link(lambda _: self._ended(size))

    def _ended(self, size: int) -> None:
        self._running -= 1
        self._bytes -= size

    def _run(self, env: dict[str, Any], call: SupervisorCall, builder: ResponseBuilder, run: Run) -> None:
        try:
            response = self._response(env, call, builder, run)
            if response is not None:
                payload = msgspec.json.encode(response)
                self._session.call(env, lambda number: FinishResponse(number, builder.id), NoneType, payload)
        except LemonbusError:
            pass  # the server stops: closing the call says that the response is lost
        except Exception as problem:  # noqa: BLE001 - logged and counted; closing the call says that the response is lost
            INTERNAL_ERRORS.log(problem, "a response was not stored", request_id=call.label)
        finally:
            call.close()

    def _response(
        self, env: dict[str, Any], call: SupervisorCall, builder: ResponseBuilder, run: Run
    ) -> dict[str, Any] | None:
        """Return the response when it has ended, None if it was cancelled."""

        def ask(request: InferenceRequest) -> WholeAnswer:
            with AnswerStream(self._session, env, request) as answer:
                call.on_failure = answer.cancel
                call.next(0)  # raises if it was cancelled meanwhile
                return answer.whole()

        try:
            return whole_response(builder, run(ask))
        except LemonbusError as problem:
            if problem.failure.code in CLIENT_LEFT_CODES:
                return None
            return builder.failed(problem.failure, call.label)
        except Exception as problem:  # noqa: BLE001 - the response has failed, and says so
            INTERNAL_ERRORS.log(problem, "a response failed", request_id=call.label)
            return builder.failed(INTERNAL_FAILURE, call.label)
