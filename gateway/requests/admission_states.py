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
    """The server ends."""
    REPLACED = "replaced"
    """Another release has taken over from this process, which ends."""
    LOST = "supervisor_lost"
    """The keeper has ended, so no supervisor will follow."""


class AdmissionEvent(enum.Enum):
    """What changes that."""

    WELCOMED = enum.auto()
    """A supervisor knows this process."""
    SUPERVISOR_ENDED = enum.auto()
    DRAIN = enum.auto()
    REPLACE = enum.auto()
    KEEPER_ENDED = enum.auto()


_STATE, _EVENT = AdmissionState, AdmissionEvent
_ENDS: Final = {_EVENT.DRAIN: _STATE.DRAINING, _EVENT.REPLACE: _STATE.REPLACED, _EVENT.KEEPER_ENDED: _STATE.LOST}

TRANSITIONS: Final[dict[AdmissionState, dict[AdmissionEvent, AdmissionState]]] = {
    _STATE.STARTING: {_EVENT.WELCOMED: _STATE.OPEN, _EVENT.SUPERVISOR_ENDED: _STATE.STARTING, **_ENDS},
    _STATE.OPEN: {_EVENT.WELCOMED: _STATE.OPEN, _EVENT.SUPERVISOR_ENDED: _STATE.RECOVERING, **_ENDS},
    _STATE.RECOVERING: {_EVENT.WELCOMED: _STATE.OPEN, _EVENT.SUPERVISOR_ENDED: _STATE.RECOVERING, **_ENDS},
    # While running requests end, supervisors come and go.
    _STATE.DRAINING: {
        _EVENT.WELCOMED: _STATE.DRAINING,
        _EVENT.SUPERVISOR_ENDED: _STATE.DRAINING,
        _EVENT.KEEPER_ENDED: _STATE.LOST,
    },
    _STATE.REPLACED: {
        _EVENT.WELCOMED: _STATE.REPLACED,
        _EVENT.SUPERVISOR_ENDED: _STATE.REPLACED,
        _EVENT.KEEPER_ENDED: _STATE.LOST,
    },
    _STATE.LOST: {},
}


WAITING_STATES: Final = frozenset({AdmissionState.STARTING, AdmissionState.RECOVERING})
"""States in which requests are admitted but wait, for a limited time."""
ADMISSION_FAILURES: Final = {
    AdmissionState.STARTING: Failure(Code.STARTING, "the server is starting", retry_after=1),
    AdmissionState.RECOVERING: Failure(
        Code.SUPERVISOR_LOST, "the server's supervisor does not answer, and no other has taken over yet", retry_after=5
    ),
    AdmissionState.DRAINING: Failure(Code.DRAINING, "the server is stopping", retry_after=5),
    # The server goes on: it answers on a new connection.
    AdmissionState.REPLACED: Failure(
        Code.DRAINING,
        "another process has taken over from this one; repeat the request",
        retry_after=1,
    ),
    AdmissionState.LOST: Failure(Code.SUPERVISOR_LOST, "the server lost its supervisor and is stopping", retry_after=5),
}
"""The failures of requests that are not admitted, or have waited too long."""
