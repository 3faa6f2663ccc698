"""How this supervisor ends without the server: it hands over to a successor, or its keeper is gone."""

from __future__ import annotations

import enum
import socket
from collections.abc import Callable
from typing import Any, Final

from protocol.config.settings import Settings
from protocol.messages.peers import Pong
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.state_table import next_state
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.bus.worker_barrier import WorkerBarrier
from supervisor.keeper import channel
from supervisor.lifecycle.keeper_client import KeeperClient
from supervisor.processes.gateway_process import GatewayProcess
from supervisor.runtime.messages import Messages
from supervisor.scheduler.view import SchedulerView

log = logs.get_logger()


class SuccessionState(enum.Enum):
    """What the end of a supervisor's loop means."""

    RUNNING = enum.auto()
    """The end of the server."""
    HANDING_OVER = enum.auto()
    """Only the end of this process: a successor takes over."""
    KEEPER_GONE = enum.auto()
    """The end of a server that has already lost its keeper, and with it its lock and its listener."""


class SuccessionEvent(enum.Enum):
    """What changes that."""

    HAND_OVER = enum.auto()
    KEEPER_ENDED = enum.auto()


_STATE, _EVENT = SuccessionState, SuccessionEvent

TRANSITIONS: Final[dict[SuccessionState, dict[SuccessionEvent, SuccessionState]]] = {
    _STATE.RUNNING: {_EVENT.HAND_OVER: _STATE.HANDING_OVER, _EVENT.KEEPER_ENDED: _STATE.KEEPER_GONE},
    _STATE.HANDING_OVER: {_EVENT.KEEPER_ENDED: _STATE.KEEPER_GONE},
    _STATE.KEEPER_GONE: {},
}


class _HandOver:
    """The state of a supervisor that hands over: everything that needs an answer is left to the successor.

    Peers ask the successor again for what was not answered, and report again what was not read.
    """

    def __init__(self, barrier: WorkerBarrier) -> None:
        self._barrier = barrier

    def received(self, peer: str, message: Any, _payload: bytes) -> None:
        """Only take note of answers to pings."""
        if isinstance(message, Pong):
            self._barrier.pong(peer, message.number)

    def worker_ended(self, worker: str) -> None:
        """Do nothing: the successor finds that the process does not exist."""

    def when_over(self, callback: Callable[[], None]) -> None:
        """Do nothing: this process ends first."""


class Succession:
    """Ends the loop of a supervisor whose server goes on, or whose keeper is gone."""

    def __init__(
        self,
        settings: Settings,
        loop: Loop,
        peers: PeerRegistry,
        gateway: GatewayProcess,
        barrier: WorkerBarrier,
        view: SchedulerView,
        messages: Messages,
        keeper: KeeperClient,
    ) -> None:
        """Obey the keeper from now on, and tell it when the gateways serve."""
        self._settings, self._loop, self._peers, self._barrier = settings, loop, peers, barrier
        self._view, self._messages, self._keeper = view, messages, keeper
        self.state = SuccessionState.RUNNING
        gateway.when_serving(self._ready)
        keeper.on_hand_over = self.take_over
        keeper.on_keeper_gone = self._keeper_gone

    def hold_listener(self, listener: socket.socket) -> None:
        """Make the keeper hold this listener instead of the present one."""
        self._keeper.hold(channel.LISTENER, listener.fileno())

    def take_over(self) -> None:
        """Let a new supervisor take over. Only this one ends, once its peers have read what it sent."""
        if self._messages.transition is not None:
            self._messages.when_serving(self.take_over)
        elif not self._view.closing and self.state is SuccessionState.RUNNING:
            self._transition(SuccessionEvent.HAND_OVER)
            self._messages.begin(_HandOver(self._barrier))
            on_bus = [peer for role in ("gateway", "worker", "job") for peer in self._peers.of(role)]
            self._barrier.wait(on_bus, self._loop.stop)

    def _ready(self) -> None:
        """Say that clients are answered."""
        self._keeper.ready(f"serving at {self._settings.base_url}")

    def _keeper_gone(self) -> None:
        """End at once, so that the lock and the listener are free. The other processes let their streams end."""
        log.critical("the keeper is gone: this server ends, its streams have the grace")
        self._transition(SuccessionEvent.KEEPER_ENDED)
        self._loop.stop()

    def _transition(self, event: SuccessionEvent) -> None:
        self.state = next_state(TRANSITIONS, self.state, event)
