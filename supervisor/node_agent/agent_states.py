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
    RENEWING = enum.auto()
    """A supervisor has refused it: it kills its processes, and then says Hello under another id."""
    LEAVING = enum.auto()
    """It kills its processes, and then exits."""


class AgentEvent(enum.Enum):
    """What changes that."""

    WELCOME = enum.auto()
    CONNECTION_LOST = enum.auto()
    REFUSED = enum.auto()
    ALL_ENDED = enum.auto()
    """None of its processes is left."""
    END = enum.auto()
    """The server ends, it was told to end, the grace is over, or its runtime directory is gone."""


_STATE, _EVENT = AgentState, AgentEvent

TRANSITIONS: Final[dict[AgentState, dict[AgentEvent, AgentState]]] = {
    _STATE.ALONE: {
        _EVENT.WELCOME: _STATE.SERVING,
        _EVENT.CONNECTION_LOST: _STATE.ALONE,
        _EVENT.REFUSED: _STATE.RENEWING,
        _EVENT.END: _STATE.LEAVING,
    },
    _STATE.SERVING: {
        _EVENT.WELCOME: _STATE.SERVING,
        _EVENT.CONNECTION_LOST: _STATE.ALONE,
        _EVENT.REFUSED: _STATE.RENEWING,
        _EVENT.END: _STATE.LEAVING,
    },
    _STATE.RENEWING: {_EVENT.ALL_ENDED: _STATE.ALONE, _EVENT.END: _STATE.LEAVING},
    _STATE.LEAVING: {_EVENT.END: _STATE.LEAVING},
}
