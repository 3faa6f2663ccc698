"""Job processes: each is started for one order, which is kept until the process says Hello.

The handler that starts a job knows its purpose, which calls wait for it, and when they are answered.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from protocol import ids
from protocol.messages.peers import Shutdown
from protocol.models.nodes import HEAD
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.bus.sockets import SupervisorBus
from supervisor.bus.worker_barrier import WorkerBarrier
from supervisor.processes.placement import Placement, Survivor

HELLO_TIMEOUT_S: Final = 20.0
"""How long a job may take to report. On a loaded machine, Python alone takes seconds."""

log = logs.get_logger()
OnEnded = Callable[[str, str], None]
"""Gets the name of a job, and why its process ended."""


class Jobs:
    """The jobs that run."""

    def __init__(
        self,
        loop: Loop,
        placement: Placement,
        peers: PeerRegistry,
        bus: SupervisorBus,
        barrier: WorkerBarrier,
    ) -> None:
        """None runs."""
        self._loop, self._placement, self._peers, self._bus, self._barrier = loop, placement, peers, bus, barrier
        self._names: set[str] = set()
        self._orders: dict[str, msgspec.Struct] = {}
        """Job → its order, as long as the job runs."""

    def start(self, module: str, on_ended: OnEnded, order: msgspec.Struct | None = None, node: str = HEAD) -> str:
        """Start a job on a node; return its name. ``on_ended`` is called once."""
        job = ids.peer_id("job")
        if order is not None:
            self._orders[job] = order
        self._names.add(job)
        self._placement.start(job, "job", module, partial(self._ended, job, on_ended), node=node)
        self._loop.call_later(HELLO_TIMEOUT_S, partial(self._kill_if_silent, job))
        return job

    def adopt(self, survivor: Survivor, on_ended: OnEnded) -> None:
        """Take over a job that an earlier supervisor started; ``on_ended`` as in :meth:`start`."""
        self._names.add(survivor.peer)
        self._placement.adopt(survivor, partial(self._ended, survivor.peer, on_ended))

    def names(self) -> list[str]:
        """Return the jobs whose processes run."""
        return sorted(self._names)

    def node_of(self, job: str) -> str:
        """Return the node of a job that runs."""
        return self._placement.node_of(job)

    def kill(self, job: str) -> None:
        """Kill a job, if it still runs. Everything else follows from its end."""
        if job in self._names:
            self._placement.kill(job)

    def give_up(self, job: str) -> None:
        """Kill a job, and count it as ended even if it cannot be killed."""
        if job in self._names:
            self._placement.give_up(job)

    def has_order(self, job: str) -> bool:
        """Return whether a job has said Hello, and so has its order."""
        return self._peers.get(job) is not None

    def send_order(self, job: str) -> None:
        """Send its order to a job that has said Hello and has none."""
        order = self._orders.get(job)
        if order is not None:
            self._bus.send(job, order)

    def dismiss(self, job: str) -> None:
        """Let a job exit after its result was read.

        A job waits for this, because its end might be noticed before its result.
        """
        self._bus.send(job, Shutdown(0.0, "done"))

    def _kill_if_silent(self, job: str) -> None:
        """Kill a job that has not said Hello in time: it is stopped, or runs something else."""
        if job in self._names and self._peers.get(job) is None:
            log.error("job killed", job=job, reason=f"it did not report within {HELLO_TIMEOUT_S:g} s of its start")
            self.kill(job)

    def _ended(self, job: str, on_ended: OnEnded, why: str) -> None:
        self._orders.pop(job, None)
        self._names.discard(job)
        self._peers.remove(job)
        self._bus.forget(job)
        self._barrier.forget(job)
        on_ended(job, why)
