"""The placement of a server with a cluster: sends each question to the head's placement or to that of the other nodes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from protocol.models.memory import HOST
from protocol.models.nodes import HEAD
from protocol.runtime.loop import Loop
from supervisor.nodes.node_placement import NodePlacement
from supervisor.processes.placement import LostWithNode, OnEnded, Placement, Survivor


class ClusterPlacement:
    """A :class:`~supervisor.processes.placement.Placement`."""

    def __init__(self, loop: Loop, head: Placement, others: NodePlacement) -> None:
        self._loop, self._head, self._others = loop, head, others

    def start(
        self,
        name: str,
        role: str,
        module: str,
        on_ended: OnEnded,
        extra: Mapping[str, str] | None = None,
        node: str = HEAD,
    ) -> None:
        """Start a process there. On a node that is not in the server, it has ended at once."""
        if node == HEAD:
            self._head.start(name, role, module, on_ended, extra)
        elif self._others.has_agent(node):
            self._others.start(name, role, module, on_ended, extra, node=node)
        else:
            self._loop.call_later(0.0, partial(on_ended, LostWithNode(f"node {node} is not reachable")))

    def adopt(self, survivor: Survivor, on_ended: OnEnded) -> None:
        """Take over a process, wherever it was found."""
        (self._head if survivor.node == HEAD else self._others).adopt(survivor, on_ended)

    def _of(self, name: str) -> Placement | NodePlacement:
        return self._others if name in self._others else self._head

    def kill(self, name: str) -> None:
        """Kill a process."""
        self._of(name).kill(name)

    def give_up(self, name: str) -> None:
        """Kill a process, and do not wait for its end."""
        self._of(name).give_up(name)

    def kill_all(self) -> None:
        """Kill the processes of all nodes."""
        self._others.kill_all()
        self._head.kill_all()

    def __len__(self) -> int:
        """Return how many processes all nodes have."""
        return len(self._head) + len(self._others)

    def node_of(self, name: str) -> str:
        """Return the node of a process."""
        return self._of(name).node_of(name)

    def pid(self, name: str) -> int:
        """Return the pid of a process on its node."""
        return self._of(name).pid(name)

    def server_age(self) -> float:
        """Return the age of the keeper."""
        return self._head.server_age()

    def started_by(self, name: str) -> list[int]:
        """Return the pids of this machine; of a process elsewhere there are none."""
        return self._head.started_by(name)

    def held_bytes(self, name: str) -> int:
        """Return the resident bytes of what a process has started; elsewhere, as they were read last."""
        return self._others.held(name).get(HOST, 0) if name in self._others else self._head.held_bytes(name)

    def resident_bytes(self, name: str, pid: int) -> int:
        """Return the resident bytes of a process."""
        return self._of(name).resident_bytes(name, pid)
