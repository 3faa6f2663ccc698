"""Whether new requests are admitted, and their failures if not."""

from __future__ import annotations

import enum
from typing import Final

from protocol.failures import Code, Failure

MAX_WAIT_FOR_SUPERVISOR_S: Final = 30.0
"""Seconds that requests wait in this process while no supervisor answers; then they are refused."""


class AdmissionState(enum.Enum):
    """Whether new requests are admitted."""

    STARTING = "starting"
    """No supervisor has answered this process yet; requests wait for it here."""
    OPEN = "ok"
    RECOVERING = "recovering"
    """The supervisor has ended; requests wait here for its successor."""
    DRAINING = "draining"
    LOST = "supervisor_lost"
    """The keeper has ended, so no supervisor will follow."""


WAITING_STATES: Final = frozenset({AdmissionState.STARTING, AdmissionState.RECOVERING})
"""States in which requests are admitted but wait, for a limited time."""
ADMISSION_FAILURES: Final = {
    AdmissionState.STARTING: Failure(Code.STARTING, "the server is starting", retry_after=1),
    AdmissionState.RECOVERING: Failure(
        Code.SUPERVISOR_LOST, "the server's supervisor has ended, and no other has taken over yet", retry_after=5
    ),
    AdmissionState.DRAINING: Failure(Code.DRAINING, "the server is stopping", retry_after=5),
    AdmissionState.LOST: Failure(Code.SUPERVISOR_LOST, "the server lost its supervisor and is stopping", retry_after=5),
}
"""The failures of requests that are not admitted, or have waited too long."""
REPLACED: Final = Failure(
    Code.DRAINING, "another release of the server has taken over from this process; repeat the request", retry_after=1
)
"""The failure while this process drains but the server goes on: it answers on a new connection."""
