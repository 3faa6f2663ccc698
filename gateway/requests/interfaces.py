"""What requests need from the session with the supervisor: sending, reserving, and the settings.

`gateway.bus` has the session and depends on this folder, not the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from gateway.http.request_context import Exchange, RequestContext, Reservation
from gateway.requests.exchange import InferenceRequest, RequestExchange
from protocol.config.settings import Settings


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
