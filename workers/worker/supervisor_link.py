"""Connects a worker or a job to its supervisor, and to the next one when that has ended.

A supervisor on the same node is watched by its process. One on another node is watched by the connection: its end is taken for
that of the supervisor, and the next connection may be to the same one.

Invariants:

* Each connection begins with `Hello` and the snapshot of that moment. When the supervisor has ended, its connection is
  closed with everything that waits in it.
* A living supervisor gets one `Hello`, however late it answers, unless the connection breaks: what it sends with its
  answer would be lost.
* The keeper's end is the end of the server: after that, no supervisor is looked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from protocol.messages.peers import Hello, Welcome
from protocol.messages.recovery import WorkerSnapshot
from protocol.models.nodes import HEAD
from protocol.runtime import logs, process_name
from protocol.runtime.loop import Loop, Timer
from protocol.runtime.process_context import PROOF_VARIABLE, ProcessContext
from protocol.wire.bus_connection import HELLO_INTERVAL_S, ON_OTHER_NODE, probe_interval
from protocol.wire.envelope import pack_payload
from workers.worker.bus import WorkerBus


class SupervisorLink:
    """Says Hello, and watches the supervisor and the keeper."""

    def __init__(
        self,
        loop: Loop,
        bus: WorkerBus,
        context: ProcessContext,
        hello: Hello,
        snapshot: Callable[[], msgspec.Struct],
        send_again: Callable[[], None],
        keeper_died: Callable[[], None],
    ) -> None:
        """Do nothing before :meth:`start`.

        ``snapshot`` says what this process does. ``send_again`` sends, directly after `Hello`, what the last supervisor
        may not have read.
        """
        self._loop, self._bus, self._context, self._hello = loop, bus, context, hello
        self._snapshot, self._send_again, self._on_keeper_death = snapshot, send_again, keeper_died
        self._supervisor = 0
        """The pid of the watched supervisor, -1 for one on another node, 0 while there is none."""
        self._timer: Timer | None = None
        self._lost_at = loop.now()
        """Since when there is no supervisor."""
        self.welcomed = False
        """Whether the watched supervisor has answered."""
        self.server_lives = True

    def start(self) -> None:
        """Say Hello to the listening supervisor, which may not be the one that started this process."""
        self._loop.on_death(self._context.keeper, self._keeper_died)
        self._bus.on_connection_ended = lambda: self._supervisor_died(ON_OTHER_NODE)
        self._look_for_supervisor()

    def take_welcome(self, welcome: Welcome) -> None:
        """Take the supervisor's answer: this is the one to watch."""
        if not self.server_lives:
            return
        self._cancel_timer()
        logs.set_level(welcome.log_level)
        self.welcomed = True
        process_name.note_welcome(self._hello.role)
        self._watch(ON_OTHER_NODE if self._bus.is_remote else welcome.pid)

    def _watch(self, pid: int) -> None:
        if pid in (self._supervisor, self._context.keeper):
            return
        self._forget_supervisor()
        self._supervisor = pid
        if pid != ON_OTHER_NODE:
            self._loop.on_death(pid, lambda: self._supervisor_died(pid))

    def _forget_supervisor(self) -> None:
        if self._supervisor not in (0, ON_OTHER_NODE):
            self._loop.forget_death(self._supervisor)
        self._supervisor = 0

    def _supervisor_died(self, pid: int) -> None:
        if pid != self._supervisor or not self.server_lives:
            return
        self._supervisor = 0
        self._cancel_timer()
        if not self.welcomed:
            # It was only seen to listen. A dead one may also listen, as long as a child of it holds the socket.
            self._timer = self._loop.call_later(probe_interval(0.0), self._look_for_supervisor)
            return
        self.welcomed = False
        self._lost_at = self._loop.now()
        if pid == ON_OTHER_NODE:
            logs.get_logger().info("the connection to the supervisor has ended; this process waits for the next one")
        else:
            logs.get_logger().info("the supervisor has ended; this process waits for the next one", supervisor_pid=pid)
        self._look_for_supervisor()

    def _look_for_supervisor(self) -> None:
        """Connect to the next supervisor, now or when it listens."""
        self._bus.disconnect()
        supervisor = self._bus.find_supervisor()
        if supervisor:
            self._bus.connect()
            self._watch(supervisor)
            snapshot = self._snapshot()
            model = snapshot.model_in_use if isinstance(snapshot, WorkerSnapshot) else None
            self._bus.send(msgspec.structs.replace(self._hello, model=model), pack_payload(snapshot))
            self._send_again()
            self._check_connection_later()
        else:
            wait = probe_interval(self._loop.now() - self._lost_at)
            self._timer = self._loop.call_later(wait, self._look_for_supervisor)

    def _check_connection_later(self) -> None:
        self._timer = self._loop.call_later(HELLO_INTERVAL_S, self._check_connection)

    def _check_connection(self) -> None:
        if self._bus.is_broken():
            self._look_for_supervisor()
        else:
            self._check_connection_later()

    def _keeper_died(self) -> None:
        self.server_lives = self.welcomed = False
        self._cancel_timer()
        self._forget_supervisor()
        self._on_keeper_death()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def hello(role: str, name: str, context: ProcessContext, bus: WorkerBus | None = None) -> Hello:
    """Return the `Hello` of this process. ``bus``: of a worker, which publishes events."""
    node = "" if context.node == HEAD else context.node
    endpoint, remote = (bus.endpoint, bus.remote_endpoint) if bus is not None else ("", "")
    proof = os.environ.pop(PROOF_VARIABLE, "")  # what this process starts needs none
    return Hello(
        role, name, os.getpid(), context.boot, endpoint=endpoint, node=node, remote_endpoint=remote, proof=proof
    )
