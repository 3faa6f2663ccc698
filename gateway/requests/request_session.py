"""What requests need from the session with the supervisor: sending, reserving, and the settings; and how one is reserved.

The supervisor refuses a reservation as it would later refuse the request: for an unknown model, for a key that may not
use it or is over its limits. Otherwise it counts the request, once: the request takes the reservation over.

`gateway.bus` has the session and depends on this folder, not the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from gateway.http.request_context import Exchange, RequestContext, Reservation, request_context
from gateway.requests.exchange import RequestExchange
from gateway.requests.inference_request import InferenceRequest
from protocol.config.settings import Settings
from protocol.messages.work import ReserveRequest


class ReservationCall(Exchange, Reservation, Protocol):
    """The call by which the supervisor reserves a request."""

    def next(self) -> object:
        """Wait for its answer; raises ``LemonbusError`` if the supervisor refuses, is lost, or the client hangs up."""

    def stop_watching(self) -> None:
        """Let the call outlive the client's connection."""


class RequestSession(Protocol):
    """Sends requests to the supervisor."""

    @property
    def settings(self) -> Settings:
        """The settings of the server."""

    def start_exchange(self, request: InferenceRequest, context: RequestContext, reservation: int) -> RequestExchange:
        """Send an inference request; raises ``LemonbusError`` if it is not admitted, or if its body cannot be stored."""

    def release(self, exchange: RequestExchange) -> None:
        """Forget an exchange that is over. Idempotent."""

    def start_call(
        self, env: dict[str, Any], build: Callable[[int], msgspec.Struct], *, endless: bool
    ) -> ReservationCall:
        """Send the message that ``build`` makes from the call's number.

        ``endless``: the call goes on after its answer.
        """


def reserve(session: RequestSession, env: dict[str, Any], endpoint: str, model: str, tokens: int) -> None:
    """Reserve the inference request that the HTTP request of ``env`` will become, unless that was done.

    Call it before anything is done for the request that a refused one must not cause. Raises ``LemonbusError`` if it is refused.
    ``tokens``: what it may use, or a guess.
    """
    context = request_context(env)
    if context.reservation is not None:
        return
    caller, refusal = context.caller, context.download_refusal
    if caller is not None:
        caller = caller.reserving(tokens)
    call = session.start_call(
        env, lambda number: ReserveRequest(number, model, endpoint, caller, refusal), endless=True
    )
    context.exchange = call
    try:
        call.next()
    except BaseException:
        call.close()
        raise
    # The reservation may outlive the connection: a background response takes it over.
    call.stop_watching()
    context.reservation = call
