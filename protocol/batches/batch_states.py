"""The life of a batch, as one table. Only the job that works batches off follows it; gateways read where it is. Pure."""

from __future__ import annotations

import enum
from typing import Final


class BatchState(enum.StrEnum):
    """Where a batch is: OpenAI's words."""

    VALIDATING = "validating"
    """It was accepted; its lines have not been checked."""
    IN_PROGRESS = "in_progress"
    """Its lines are valid, and are worked off."""
    FINALIZING = "finalizing"
    """Nothing more is sent, and its results become files."""
    COMPLETED = "completed"
    FAILED = "failed"
    """Its lines are not valid, and none was sent; or its files are gone."""
    EXPIRED = "expired"
    """Its time was over before all lines were sent."""
    CANCELLING = "cancelling"
    """It was cancelled, and its results become files."""
    CANCELLED = "cancelled"


class BatchEvent(enum.Enum):
    """What changes that."""

    VALID = enum.auto()
    INVALID = enum.auto()
    STOP = enum.auto()
    """All lines have a result, or the time is over."""
    CANCEL = enum.auto()
    LOST = enum.auto()
    """Its files are gone."""
    KEPT = enum.auto()
    """All results are in files."""
    KEPT_LATE = enum.auto()
    """The same, but some lines were not sent in time."""


_STATE, _EVENT = BatchState, BatchEvent

TRANSITIONS: Final[dict[BatchState, dict[BatchEvent, BatchState]]] = {
    _STATE.VALIDATING: {
        _EVENT.VALID: _STATE.IN_PROGRESS,
        _EVENT.INVALID: _STATE.FAILED,
        _EVENT.CANCEL: _STATE.CANCELLING,
        _EVENT.LOST: _STATE.FAILED,
    },
    _STATE.IN_PROGRESS: {
        _EVENT.STOP: _STATE.FINALIZING,
        _EVENT.CANCEL: _STATE.CANCELLING,
        _EVENT.LOST: _STATE.FAILED,
    },
    _STATE.FINALIZING: {_EVENT.KEPT: _STATE.COMPLETED, _EVENT.KEPT_LATE: _STATE.EXPIRED, _EVENT.LOST: _STATE.FAILED},
    _STATE.COMPLETED: {},
    _STATE.FAILED: {},
    _STATE.EXPIRED: {},
    _STATE.CANCELLING: {_EVENT.KEPT: _STATE.CANCELLED, _EVENT.LOST: _STATE.FAILED},
    _STATE.CANCELLED: {},
}

ENDED: Final = frozenset(state for state, steps in TRANSITIONS.items() if not steps)
"""States in which nothing more happens to a batch."""
CANCELLABLE: Final = frozenset(state for state, steps in TRANSITIONS.items() if _EVENT.CANCEL in steps)
