"""The lifecycle of an agent as one table. Pure."""

from __future__ import annotations

import enum
from typing import Final


class AgentState(enum.Enum):
    """What an agent does."""

    ALONE = enum.auto()
    """No supervisor has welcomed it on the present connection. Its processes go on for the grace."""
    SERVING = enum.auto()
    """It does what the supervisor says."""
    DRAINING = enum.auto()
    """It was told to end. The supervisor moves its models, and it ends with its last worker."""
    DRAINING_ALONE = enum.auto()
    """The same without a supervisor."""
    RENEWING = enum.auto()
    """A supervisor has refused it: it kills its processes, and then says Hello under another id."""
    LEAVING = enum.auto()
    """It kills its processes, and then exits."""


class AgentEvent(enum.Enum):
    """What changes that."""

    WELCOME = enum.auto()
    CONNECTION_LOST = enum.auto()
    REFUSED = enum.auto()
    DRAIN = enum.auto()
    """It was told to end once its streams have ended."""
    ALL_ENDED = enum.auto()
    """None of its processes is left."""
    END = enum.auto()
    """It has drained, the server ends, it was told to end at once, the grace is over, or its runtime directory is gone."""


_STATE, _EVENT = AgentState, AgentEvent

TRANSITIONS: Final[dict[AgentState, dict[AgentEvent, AgentState]]] = {
    _STATE.ALONE: {
        _EVENT.WELCOME: _STATE.SERVING,
        _EVENT.CONNECTION_LOST: _STATE.ALONE,
        _EVENT.REFUSED: _STATE.RENEWING,
        _EVENT.DRAIN: _STATE.DRAINING_ALONE,
        _EVENT.END: _STATE.LEAVING,
    },
    _STATE.SERVING: {
        _EVENT.WELCOME: _STATE.SERVING,
        _EVENT.CONNECTION_LOST: _STATE.ALONE,
        _EVENT.REFUSED: _STATE.RENEWING,
        _EVENT.DRAIN: _STATE.DRAINING,
        _EVENT.END: _STATE.LEAVING,
    },
    _STATE.DRAINING: {
        _EVENT.WELCOME: _STATE.DRAINING,
        _EVENT.CONNECTION_LOST: _STATE.DRAINING_ALONE,
        _EVENT.END: _STATE.LEAVING,
    },
    _STATE.DRAINING_ALONE: {
        _EVENT.WELCOME: _STATE.DRAINING,
        _EVENT.CONNECTION_LOST: _STATE.DRAINING_ALONE,
        _EVENT.END: _STATE.LEAVING,
    },
    _STATE.RENEWING: {_EVENT.ALL_ENDED: _STATE.ALONE, _EVENT.END: _STATE.LEAVING},
    _STATE.LEAVING: {_EVENT.END: _STATE.LEAVING},
}
