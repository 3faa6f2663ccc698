"""Connects an agent to the supervisor, and to the next one when the connection has ended.

Each connection begins with `Hello` and the snapshot of that moment. What was sent on an earlier one, and not read, is in
the snapshot; so messages that find no connection are dropped.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import msgspec
import zmq

from protocol.messages.gateway_hosts import GATEWAY_HOST
from protocol.messages.nodes import AgentSnapshot
from protocol.messages.peers import Hello, Ping, Pong
from protocol.runtime import logs
from protocol.runtime.log_output import DropCounter
from protocol.runtime.loop import Loop, Timer
from protocol.runtime.process_context import ProcessContext
from protocol.wire import envelope, frames
from protocol.wire.bus_address import BusAddress
from protocol.wire.bus_connection import SupervisorDealer, connect_logs, probe_interval
from protocol.wire.peer_proof import PeerIdentity, new_identity

_LINGER_MS: Final = 500
_LOGS_HIGH_WATER: Final = 10_000


class AgentLink:
    """The sockets of an agent."""

    def __init__(
        self,
        loop: Loop,
        context: ProcessContext,
        address: BusAddress,
        snapshot: Callable[[], AgentSnapshot] | None,
        on_message: Callable[[Any, bytes], None],
        on_lost: Callable[[], None],
        role: str = "agent",
    ) -> None:
        """Do nothing before :meth:`begin`. ``on_lost`` is called when a connection has ended that was made.

        ``role``: the host of gateways also uses this, and has no snapshot.
        """
        self._role = role
        self.on_refused: Callable[[], None] = lambda: None
        """Called when a supervisor, or what listens there, does not admit our key."""
        self._loop, self._process, self._address = loop, context, address
        self._snapshot, self._on_message, self._on_lost = snapshot, on_message, on_lost
        self._context = zmq.Context()
        self._identity = PeerIdentity("", "")
        self._supervisor: SupervisorDealer | None = None
        self._number = -1
        self._lost_at = 0.0
        self._timer: Timer | None = None
        self._errors_reported = 0
        self._logs: zmq.Socket[bytes] = self._context.socket(zmq.PUSH)
        self._logs.setsockopt(zmq.SNDHWM, _LOGS_HIGH_WATER)
        self._logs.setsockopt(zmq.LINGER, _LINGER_MS)
        connect_logs(self._logs, address, context.boot)
        self.log: Final = DropCounter(lambda line: frames.send(self._logs, line))
        """Sends log records, and counts those that were dropped."""

    def begin(self) -> None:
        """Connect under a new id from now on."""
        self._identity = new_identity("host" if self._role == GATEWAY_HOST else self._role)
        self._supervisor = SupervisorDealer(
            context=self._context,
            address=self._address,
            peer=self._identity.id.encode(),
            watch=self._loop.watch,
            read=self._read,
            ended=self._ended,
        )
        self._supervisor.on_refused = self.on_refused
        self._lost_at = self._loop.now()
        self._look_for_supervisor()

    def end(self) -> None:
        """Close the connection, and make no other one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._supervisor is not None:
            self._supervisor.close(_LINGER_MS)
            self._supervisor = None

    def send(self, message: msgspec.Struct, payload: bytes = b"") -> None:
        """Send a message, if a supervisor has been said Hello to."""
        if self._supervisor is not None and self._supervisor.dealer is not None:
            self._loop.used(self._number)
            self._supervisor.send(envelope.encode(message, payload))

    def _look_for_supervisor(self) -> None:
        """Say Hello to the supervisor, now or when there is one."""
        self._timer = None
        if self._supervisor is None:
            return
        if self._supervisor.find():
            self._number = int(self._supervisor.open().FD)
            name, proof = self._identity
            hello = Hello(self._role, name, os.getpid(), self._process.boot, node=self._process.node, proof=proof)
            self.send(hello, envelope.pack_payload(self._snapshot()) if self._snapshot is not None else b"")
        else:
            wait = probe_interval(self._loop.now() - self._lost_at)
            self._timer = self._loop.call_later(wait, self._look_for_supervisor)

    def _ended(self) -> None:
        supervisor, self._lost_at = self._supervisor, self._loop.now()
        if supervisor is not None:
            supervisor.drop()
        self._on_lost()
        if self._supervisor is supervisor:
            self._look_for_supervisor()

    def _read(self) -> None:
        supervisor = self._supervisor
        if supervisor is None or supervisor.dealer is None:
            return
        for frame in supervisor.receive():
            try:
                message, payload = envelope.decode(frame)
            except envelope.MalformedError as problem:
                logs.get_logger().warning("malformed message from the supervisor", reason=str(problem))
                continue
            if isinstance(message, Ping):
                errors = self._loop.errors
                self.send(Pong(message.number, errors - self._errors_reported))
                self._errors_reported = errors
            else:
                self._on_message(message, payload)
            if self._supervisor is not supervisor:
                return
        self._loop.drained(self._number)

    def close(self) -> None:
        """Close all sockets; the last messages and log records get a moment to leave."""
        self.end()
        self._logs.close()
        self._context.term()
