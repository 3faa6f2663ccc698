"""Hello and Welcome: a process of this server is registered, and told whom it serves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from protocol.config.api_keys import keys_of_settings
from protocol.config.settings import Settings
from protocol.messages.peers import Hello, Peer, Shutdown, Welcome
from protocol.models.nodes import HEAD
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.bus.sockets import SupervisorBus
from supervisor.persistence.server_record import ServerRecord
from supervisor.processes.placement import Survivor
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.loaded_code import LOADED_CODE


class Agents(Protocol):
    """The agents of other nodes, on a server that has a cluster: :class:`supervisor.nodes.agents.NodeAgents`."""

    def expect(self) -> Mapping[str, float]:
        """Expect the agents of an earlier supervisor; return for how many seconds each."""

    def hello(self, agent: str, message: Hello, payload: bytes) -> list[Survivor]:
        """Take an agent, or tell it to end its processes; return those of its processes that are to be adopted."""

    def handlers(self) -> Mapping[type, Handler]:
        """Return the handlers of messages for which no takeover waits."""

    def take_over(self) -> list[str]:
        """Count those that have not reported as lost; return the nodes of the others.

        To be called before the scheduler learns what runs.
        """


class OtherGateways(Protocol):
    """The gateways of other nodes: :class:`supervisor.nodes.remote_gateways.RemoteGateways`."""

    def expect(self, on_ended: Callable[[str], None]) -> list[str]:
        """Return the gateways of an earlier supervisor. ``on_ended`` gets the name of each once."""

    def hello(self, peer: str, hello: Hello, on_ended: Callable[[str], None]) -> bool:
        """Take a gateway or the host of some; return whether it is a gateway that takes part. ``on_ended`` gets its name once."""


class Handshake:
    """The supervisor's side of it."""

    def __init__(
        self,
        settings: Settings,
        process_context: ProcessContext,
        loop: Loop,
        bus: SupervisorBus,
        peers: PeerRegistry,
        record: ServerRecord,
        send_sampling_defaults: Callable[[str], None],
    ) -> None:
        """``send_sampling_defaults`` sends a worker those that are set."""
        self._settings, self._process_context, self._loop = settings, process_context, loop
        self._bus, self._peers, self._record = bus, peers, record
        self._send_sampling_defaults = send_sampling_defaults

    def accepts(self, peer: str, hello: Hello, *, known: bool) -> bool:
        """Return whether this server has started a process; tell any other one to end. ``known``: whether its id is known."""
        accepted = known and hello.boot == self._process_context.boot
        if not accepted:
            self._bus.forget(peer)
            self._bus.send(peer, Shutdown(0.0, "this server did not start this process"))
        return accepted

    def welcome(self, peer: str, hello: Hello) -> None:
        """Register a peer and answer its Hello."""
        self._peers.add(Peer(hello.role, peer, hello.pid, hello.node), self._loop.now())
        keys = None
        if hello.role == "gateway":
            keys = keys_of_settings(self._settings)
            self._bus.send(peer, self._record.readiness)  # before the Welcome, which lets it admit requests
        clock = time.time() if hello.node not in ("", HEAD) else 0.0
        welcome = Welcome(
            self._process_context.boot,
            os.getpid(),
            LOADED_CODE,
            keys,
            log_level=self._settings.log_level,
            clock=clock,
        )
        self._bus.send(peer, welcome)

    def greet_worker(self, worker: str) -> None:
        """Send a worker that serves this supervisor from now on what it needs."""
        self._send_sampling_defaults(worker)
