"""Whether this gateway admits new requests now, and the failure that says why not.

:mod:`gateway.requests.admission_states` has the table of its states. Running requests and calls may finish in every state.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gateway.requests.admission_states import (
    ADMISSION_FAILURES,
    TRANSITIONS,
    WAITING_STATES,
    AdmissionEvent,
    AdmissionState,
)
from protocol.failures import SERVER_DRAINED, Failure
from protocol.messages.readiness import ServerReadiness
from protocol.state_table import next_state


class GatewayAdmission:
    """The state of one gateway. It only changes in callbacks of gevent's hub."""

    def __init__(self, waited_too_long: Callable[[float], bool]) -> None:
        """Start without a supervisor.

        ``waited_too_long(now)``: returns whether requests have waited too long for one, by ``time.monotonic``.
        """
        self.state = AdmissionState.STARTING
        self.server = ServerReadiness(ready=False, drained=False)
        """What the supervisor has said about the whole server."""
        self._waited_too_long = waited_too_long

    def apply(self, event: AdmissionEvent) -> None:
        """Change the state."""
        self.state = next_state(TRANSITIONS, self.state, event)

    def admit(self, *, question: bool = False) -> None:
        """If new requests and calls are not admitted, raise the failure that says why.

        ``question``: it only asks about the server. Operators must get an answer until the end of the server.
        """
        if self.state is AdmissionState.OPEN or (question and self.state is AdmissionState.DRAINING):
            return
        if self.state not in WAITING_STATES or self._waited_too_long(time.monotonic()):
            raise self.refusal.raised()

    def admit_inference(self) -> None:
        """If new inference requests are not admitted, raise the failure that says why."""
        self.admit()
        if self.server.drained:
            raise SERVER_DRAINED.raised()

    def check_readiness(self) -> None:
        """If a load balancer should choose another server now, raise the failure that says why.

        While the state is ``RECOVERING`` it should not: requests are served a moment later.
        """
        self.check_answers()
        self.admit_inference()

    def check_answers(self) -> None:
        """If nothing is known about the server, raise the failure that says why."""
        if self.state is AdmissionState.STARTING:
            raise self.refusal.raised()
        self.admit(question=True)

    @property
    def process_ends(self) -> bool:
        """Return whether this process ends as soon as what it serves has ended."""
        return self.state not in WAITING_STATES and self.state is not AdmissionState.OPEN

    @property
    def server_ends(self) -> bool:
        """Return whether this process drains because the whole server does."""
        return self.state is AdmissionState.DRAINING

    @property
    def refusal(self) -> Failure:
        """Return why no request is admitted in the present state."""
        return ADMISSION_FAILURES[self.state]
