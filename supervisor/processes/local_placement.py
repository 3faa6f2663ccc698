"""The placement on this machine: processes are children of this supervisor or of the keeper, and pids are the kernel's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import psutil

from protocol.models.nodes import HEAD
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import PEER_VARIABLE, ProcessContext
from supervisor.keeper import process_tree
from supervisor.processes.child_processes import ChildProcess, ChildProcesses
from supervisor.processes.keeper_children import KeeperChild
from supervisor.processes.placement import OnEnded, Survivor


class LocalPlacement:
    """A :class:`~supervisor.processes.placement.Placement`."""

    def __init__(self, loop: Loop, process_context: ProcessContext) -> None:
        """No process runs yet."""
        self.processes = ChildProcesses(loop, process_context)
        """All of this machine, also those that have no name on the bus."""
        self._keeper = process_context.keeper
        self._running: dict[str, ChildProcess] = {}
        self._found: dict[str, KeeperChild] = {}
        """What :meth:`survivors` has returned, until it is adopted."""

    def start(
        self,
        name: str,
        role: str,
        module: str,
        on_ended: OnEnded,
        extra: Mapping[str, str] | None = None,
        node: str = HEAD,
    ) -> None:
        """Fork or start a process; see the interface."""
        if node != HEAD:
            raise ValueError(f"{name} is to run on node {node}, which is not this machine")
        variables = {PEER_VARIABLE: name, **(extra or {})}
        self._running[name] = self.processes.start(role, module, self._ending(name, on_ended), variables)

    def survivors(self, found: Iterable[KeeperChild]) -> list[Survivor]:
        """Return the workers and jobs among the children of the keeper, to be adopted."""
        self._found = {each.peer: each for each in found if each.role in ("worker", "job")}
        return [Survivor(each.role, each.peer, each.fingerprint, each.welcomed) for each in self._found.values()]

    def adopt(self, survivor: Survivor, on_ended: OnEnded) -> None:
        """Watch a process that is now a child of the keeper."""
        name = survivor.peer
        self._running[name] = self.processes.adopt(self._found.pop(name), self._ending(name, on_ended))

    def _ending(self, name: str, on_ended: OnEnded) -> OnEnded:
        def ended(why: str) -> None:
            self._running.pop(name, None)
            on_ended(why)

        return ended

    def kill(self, name: str) -> None:
        """Kill the process's group."""
        if name in self._running:
            self.processes.kill(self._running[name])

    def terminate(self, name: str) -> None:
        """Ask a process to end."""
        if name in self._running:
            self.processes.terminate(self._running[name])

    def give_up(self, name: str) -> None:
        """Kill the process's group, and count it as ended."""
        if name in self._running:
            self.processes.give_up(self._running[name])

    def kill_all(self) -> None:
        """Kill all groups."""
        self.processes.kill_all()

    def __len__(self) -> int:
        """Return how many processes of this machine run."""
        return len(self.processes)

    def node_of(self, name: str) -> str:  # noqa: ARG002 - all run on this machine
        """Return the head."""
        return HEAD

    def pid(self, name: str) -> int:
        """Return the pid of a process, 0 if it has ended or is not started yet."""
        child = self._running.get(name)
        return child.pid if child is not None else 0

    def server_age(self) -> float:
        """Return how many seconds the keeper has existed."""
        return process_tree.age(self._keeper)

    def started_by(self, name: str) -> list[int]:
        """Return the pids of a process's descendants. This costs a few system calls for each."""
        waiting = process_tree.children(self.pid(name)) if name in self._running else []
        found = []
        while waiting:
            pid = waiting.pop()
            found.append(pid)
            waiting += process_tree.children(pid)
        return found

    def held_bytes(self, name: str) -> int:
        """Return the resident bytes of a process's descendants. This costs a system call or two more for each."""
        return sum(self.resident_bytes(name, pid) for pid in self.started_by(name))

    def resident_bytes(self, name: str, pid: int) -> int:  # noqa: ARG002 - all run on this machine
        """Return the resident bytes of a process, with its mapped files. This costs a system call or two."""
        try:
            return int(psutil.Process(pid).memory_info().rss) if pid else 0
        except (psutil.Error, OSError):
            return 0
