"""The lifecycle of a node, from its agent's first Hello to its loss, as one table. Pure."""

from __future__ import annotations

import enum
from typing import Final


class NodeConnection(enum.Enum):
    """What this supervisor knows of a node and its agent."""

    JOINING = enum.auto()
    """An earlier supervisor had it, and its agent has not said Hello to this one."""
    READY = enum.auto()
    """Its agent answers."""
    UNREACHABLE = enum.auto()
    """Its agent does not answer, but may answer again in time."""
    GONE = enum.auto()
    """It has no agent any more. The next one begins as another node of the same name."""


class ConnectionEvent(enum.Enum):
    """What changes that."""

    HELLO = enum.auto()
    """Its agent has said Hello, for the first time or after a break of its connection."""
    SILENT = enum.auto()
    ANSWERED = enum.auto()
    LOST = enum.auto()
    """Its agent was silent for too long, or has ended."""


_STATE, _EVENT = NodeConnection, ConnectionEvent

TRANSITIONS: Final[dict[NodeConnection, dict[ConnectionEvent, NodeConnection]]] = {
    _STATE.JOINING: {_EVENT.HELLO: _STATE.READY, _EVENT.LOST: _STATE.GONE},
    _STATE.READY: {_EVENT.HELLO: _STATE.READY, _EVENT.SILENT: _STATE.UNREACHABLE, _EVENT.LOST: _STATE.GONE},
    _STATE.UNREACHABLE: {_EVENT.HELLO: _STATE.READY, _EVENT.ANSWERED: _STATE.READY, _EVENT.LOST: _STATE.GONE},
    _STATE.GONE: {},
}
