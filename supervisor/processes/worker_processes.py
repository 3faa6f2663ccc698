"""The worker processes: started and killed by name. Each says where it publishes its events."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from protocol.messages.peers import Hello
from protocol.models.nodes import HEAD
from protocol.runtime.process_context import FINGERPRINT_VARIABLE, ProcessContext
from protocol.wire import endpoints
from supervisor.processes.fingerprints import release_of
from supervisor.processes.placement import Placement, Survivor


class WorkerProcesses:
    """Starts, kills and reports workers. The scheduler decides when."""

    def __init__(self, placement: Placement, process_context: ProcessContext, fingerprint: str = "") -> None:
        """``fingerprint``: of the settings and the release that workers get at their start."""
        self._placement, self._context, self._fingerprint = placement, process_context, fingerprint
        self.on_ended: Callable[[str, str], None] = lambda _worker, _why: None
        """Called with the name of each worker that has ended, and why."""
        self._outdated: set[str] = set()
        self._names: set[str] = set()
        self._endpoints: dict[str, tuple[str, str]] = {}
        """Worker → where it publishes its events on the head, if it runs there, and for other nodes."""

    def start(self, worker: str, node: str = HEAD) -> None:
        """Start a worker's process under this name."""
        self._names.add(worker)
        fingerprint = {FINGERPRINT_VARIABLE: self._fingerprint}
        self._placement.start(worker, "worker", "workers", partial(self._ended, worker), fingerprint, node=node)

    def adopt(self, survivor: Survivor) -> None:
        """Take over a worker that an earlier supervisor started."""
        if survivor.fingerprint != self._fingerprint:
            self._outdated.add(survivor.peer)
        self._names.add(survivor.peer)
        self._placement.adopt(survivor, partial(self._ended, survivor.peer))

    def may_have_model(self, survivor: Survivor) -> bool:
        """Return whether a worker of an earlier supervisor may have more to report than that it has started."""
        # How another release marks those that were welcomed is not known.
        return survivor.welcomed or release_of(survivor.fingerprint) != release_of(self._fingerprint)

    def is_outdated(self, worker: str) -> bool:
        """Return whether a worker was started with other settings, or by another release."""
        return worker in self._outdated

    def kill(self, worker: str) -> None:
        """Kill a worker, if it still runs. Everything else follows from its end."""
        if worker in self._names:
            self._placement.kill(worker)

    def names(self) -> list[str]:
        """Return the workers whose processes run."""
        return sorted(self._names)

    def nodes(self) -> dict[str, str]:
        """Return worker → node, of the workers on other nodes than the head."""
        nodes = {worker: self._placement.node_of(worker) for worker in self._names}
        return {worker: node for worker, node in nodes.items() if node != HEAD}

    def node_of(self, worker: str) -> str:
        """Return the node of a worker."""
        return self._placement.node_of(worker)

    def publishes_at(self, worker: str, hello: Hello) -> None:
        """Note at which endpoints a worker publishes its events, as its Hello says."""
        self._endpoints[worker] = ("" if hello.node else hello.endpoint, hello.remote_endpoint)

    def endpoint(self, worker: str, node: str = "") -> str:
        """Return the endpoint at which a worker publishes its events, empty before it has said so.

        ``node``: that of a gateway which asks; empty: the head. A gateway on another node is in no runtime directory of ours.
        """
        own, remote = self._endpoints.get(worker, ("", ""))
        return own if own and not node else remote

    def socket_file(self, worker: str) -> Path | None:
        """Return the file of a worker's socket; None before the worker has reported it, or if it is on another node."""
        file = endpoints.socket_file(self._endpoints.get(worker, ("", ""))[0])
        return file if file.parent == self._context.runtime else None

    def _ended(self, worker: str, why: str) -> None:
        self._names.discard(worker)
        self._outdated.discard(worker)
        try:
            self.on_ended(worker, why)
        finally:
            if file := self.socket_file(worker):
                file.unlink(missing_ok=True)
            self._endpoints.pop(worker, None)
