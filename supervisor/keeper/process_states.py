"""The states of what the keeper runs, each with its table: the server, a supervisor, a fork server.

`upgrade_steps` has those of an upgrade. `docs/lifecycles.md` shows all tables.
"""

from __future__ import annotations

import enum


class ServerState(enum.Enum):
    """The state of the whole server."""

    STARTING = enum.auto()
    """No supervisor was started yet."""
    RUNNING = enum.auto()
    CLOSING = enum.auto()
    """It was told to end: running requests may end first."""
    ENDING = enum.auto()
    """It was told to end a second time, which means at once."""
    ENDED = enum.auto()
    """The keeper exits."""


class ServerLifecycleEvent(enum.Enum):
    """What changes the state of the server."""

    SUPERVISOR_STARTED = enum.auto()
    END_ORDERED = enum.auto()
    OVER = enum.auto()
    """Its supervisor has ended it, or supervisors do not start."""


_SERVER, _OF_SERVER = ServerState, ServerLifecycleEvent

SERVER: dict[ServerState, dict[ServerLifecycleEvent, ServerState]] = {
    _SERVER.STARTING: {
        _OF_SERVER.SUPERVISOR_STARTED: _SERVER.RUNNING,
        _OF_SERVER.END_ORDERED: _SERVER.ENDED,
        _OF_SERVER.OVER: _SERVER.ENDED,
    },
    _SERVER.RUNNING: {
        _OF_SERVER.SUPERVISOR_STARTED: _SERVER.RUNNING,
        _OF_SERVER.END_ORDERED: _SERVER.CLOSING,
        _OF_SERVER.OVER: _SERVER.ENDED,
    },
    _SERVER.CLOSING: {
        _OF_SERVER.SUPERVISOR_STARTED: _SERVER.CLOSING,
        _OF_SERVER.END_ORDERED: _SERVER.ENDING,
        _OF_SERVER.OVER: _SERVER.ENDED,
    },
    _SERVER.ENDING: {
        _OF_SERVER.SUPERVISOR_STARTED: _SERVER.ENDING,
        _OF_SERVER.END_ORDERED: _SERVER.ENDING,
        _OF_SERVER.OVER: _SERVER.ENDED,
    },
    _SERVER.ENDED: {_OF_SERVER.END_ORDERED: _SERVER.ENDED},
}

TO_END = frozenset({ServerState.CLOSING, ServerState.ENDING, ServerState.ENDED})
"""States of a server that was told to end."""


class SupervisorState(enum.Enum):
    """The state of one supervisor."""

    ORDERED = enum.auto()
    """A fork server was told to fork it; it has no pid yet."""
    STARTING = enum.auto()
    """It reads its files, which takes long on a busy machine."""
    RUNNING = enum.auto()
    """Its loop runs; no gateway serves yet."""
    SERVING = enum.auto()
    LEAVING_EARLY = enum.auto()
    """It ends in an orderly way before it has served."""
    LEAVING = enum.auto()
    """It ends in an orderly way, and with it the server."""
    HANDED_OVER = enum.auto()
    """It ends for its successor."""
    KILLED = enum.auto()
    """The keeper has killed it. What it says after that changes nothing."""
    ENDED = enum.auto()


class SupervisorEvent(enum.Enum):
    """What a supervisor says, and what happens to it."""

    STARTED = enum.auto()
    BEAT = enum.auto()
    READY = enum.auto()
    LEAVE = enum.auto()
    HAND_OVER = enum.auto()
    KILL = enum.auto()
    END = enum.auto()


_STATE, _EVENT = SupervisorState, SupervisorEvent
_ENDS = {_EVENT.KILL: _STATE.KILLED, _EVENT.END: _STATE.ENDED}

SUPERVISOR: dict[SupervisorState, dict[SupervisorEvent, SupervisorState]] = {
    _STATE.ORDERED: {_EVENT.STARTED: _STATE.STARTING, **_ENDS},
    _STATE.STARTING: {
        _EVENT.BEAT: _STATE.RUNNING,
        _EVENT.READY: _STATE.SERVING,
        _EVENT.LEAVE: _STATE.LEAVING_EARLY,
        _EVENT.HAND_OVER: _STATE.HANDED_OVER,
        **_ENDS,
    },
    _STATE.RUNNING: {
        _EVENT.BEAT: _STATE.RUNNING,
        _EVENT.READY: _STATE.SERVING,
        _EVENT.LEAVE: _STATE.LEAVING_EARLY,
        _EVENT.HAND_OVER: _STATE.HANDED_OVER,
        **_ENDS,
    },
    _STATE.SERVING: {
        _EVENT.BEAT: _STATE.SERVING,
        _EVENT.READY: _STATE.SERVING,
        _EVENT.LEAVE: _STATE.LEAVING,
        _EVENT.HAND_OVER: _STATE.HANDED_OVER,
        **_ENDS,
    },
    # One that hangs after its last word is killed, and the word still counts.
    _STATE.LEAVING_EARLY: {_EVENT.KILL: _STATE.LEAVING_EARLY, _EVENT.END: _STATE.ENDED},
    _STATE.LEAVING: {_EVENT.KILL: _STATE.LEAVING, _EVENT.END: _STATE.ENDED},
    _STATE.HANDED_OVER: {_EVENT.KILL: _STATE.HANDED_OVER, _EVENT.END: _STATE.ENDED},
    _STATE.KILLED: {**dict.fromkeys(_EVENT, _STATE.KILLED), _EVENT.END: _STATE.ENDED},
    _STATE.ENDED: {},
}


class ForkServerState(enum.Enum):
    """The state of one fork server."""

    IMPORTING = enum.auto()
    """It imports the modules of a supervisor."""
    PREPARED = enum.auto()
    """It can fork supervisors; the present supervisor has no channel to it."""
    SERVING = enum.auto()
    """It also forks workers and jobs for the present supervisor."""
    CLOSED = enum.auto()
    """Its channel to the keeper is closed: it has ended, or is about to."""


class ForkServerEvent(enum.Enum):
    """What changes the state of a fork server."""

    IMPORTED = enum.auto()
    """Once more if it has started again without the modules of workers."""
    SERVE = enum.auto()
    """A supervisor gets a channel to it."""
    CHANNEL_CLOSED = enum.auto()
    """The supervisor has closed that channel."""
    CLOSE = enum.auto()


_FORK_SERVER, _OF_FORK_SERVER = ForkServerState, ForkServerEvent

FORK_SERVER: dict[ForkServerState, dict[ForkServerEvent, ForkServerState]] = {
    _FORK_SERVER.IMPORTING: {
        _OF_FORK_SERVER.IMPORTED: _FORK_SERVER.PREPARED,
        _OF_FORK_SERVER.CLOSE: _FORK_SERVER.CLOSED,
    },
    _FORK_SERVER.PREPARED: {
        _OF_FORK_SERVER.IMPORTED: _FORK_SERVER.PREPARED,
        _OF_FORK_SERVER.SERVE: _FORK_SERVER.SERVING,
        _OF_FORK_SERVER.CLOSE: _FORK_SERVER.CLOSED,
    },
    _FORK_SERVER.SERVING: {
        _OF_FORK_SERVER.IMPORTED: _FORK_SERVER.SERVING,
        _OF_FORK_SERVER.SERVE: _FORK_SERVER.SERVING,
        _OF_FORK_SERVER.CHANNEL_CLOSED: _FORK_SERVER.PREPARED,
        _OF_FORK_SERVER.CLOSE: _FORK_SERVER.CLOSED,
    },
    _FORK_SERVER.CLOSED: {_OF_FORK_SERVER.CLOSE: _FORK_SERVER.CLOSED},
}
