"""The placement on other nodes: the processes there are children of the node's agent, which is told by messages.

A message may be lost with the agent's connection. So this keeps what it has asked for, and compares it with the
snapshot of each Hello: what the agent does not know is ordered again, and what this supervisor does not know is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from protocol.messages.engines import EngineReady
from protocol.messages.nodes import AgentSnapshot, KillProcess, StartProcess, WorkerFigures
from protocol.runtime.process_context import PROOF_VARIABLE
from supervisor.processes.placement import LostWithNode, OnEnded, Survivor

_UNKNOWN_FIGURES = WorkerFigures()

Prove = Callable[[str], str]
"""Returns the proof with which a process of this id says Hello."""
Send = Callable[[str, msgspec.Struct], None]
"""Sends an agent a message."""


class _NodeProcess(msgspec.Struct):
    """A process on a node."""

    node: str
    on_ended: OnEnded
    order: StartProcess | None = None
    """As it was ordered; None if an earlier supervisor has started it."""
    killed: bool = False
    given_up: bool = False
    """Whether its end is not waited for."""
    pid: int = 0


class NodePlacement:
    """A :class:`~supervisor.processes.placement.Placement` of all nodes but the head."""

    def __init__(self, send: Send, prove: Prove) -> None:
        """No process runs yet."""
        self._send, self._prove = send, prove
        self._agents: dict[str, str] = {}
        """Node → its agent, while it has one."""
        self._running: dict[str, _NodeProcess] = {}
        self._found: dict[str, int] = {}
        """Process of an earlier supervisor that was not adopted yet → its pid."""
        self._figures: dict[str, WorkerFigures] = {}

    def __len__(self) -> int:
        """Return the number of processes that run or start, except those that were given up."""
        return sum(not process.given_up for process in self._running.values())

    def __contains__(self, name: str) -> bool:
        """Return whether a process of this name runs on one of these nodes."""
        return name in self._running

    # What agents say

    def hello(self, node: str, agent: str, snapshot: AgentSnapshot) -> list[Survivor]:
        """Take note of an agent's snapshot; return the processes that this supervisor does not know, to be adopted or killed."""
        self._agents[node] = agent
        there = {process.name: process for process in snapshot.processes}
        ended = {process.name: process.why for process in snapshot.ended}
        for name in self._names_on(node):
            process = self._running[name]
            if name in there:
                process.pid = there[name].pid
                if process.killed:
                    self._send(agent, KillProcess(name))
            elif name in ended:
                self.ended(name, ended[name])
            elif process.order is None or process.killed:
                self.ended(name, "its node does not know it any more")
            else:
                self._send(agent, process.order)  # the first order was lost
        unknown = [process for name, process in there.items() if name not in self._running]
        self._found.update({process.name: process.pid for process in unknown})
        return [Survivor(each.role, each.name, each.fingerprint, each.welcomed, node) for each in unknown]

    def ended(self, name: str, why: str) -> None:
        """Take note of the end of a process. An unknown one is ignored."""
        process = self._running.pop(name, None)
        self._figures.pop(name, None)
        if process is not None:
            process.on_ended(why)

    def ended_on(self, node: str, name: str, why: str) -> None:
        """Take note of what the agent of a node says about the end of a process. It knows only those of its own node."""
        process = self._running.get(name)
        if process is not None and process.node == node:
            self.ended(name, why)

    def figures_read(self, node: str, figures: Mapping[str, WorkerFigures]) -> None:
        """Take note of what workers of a node use."""
        for name, worker in figures.items():
            process = self._running.get(name)
            if process is not None and process.node == node:
                self._figures[name] = worker
                process.pid = worker.pid

    def lost(self, node: str, why: str) -> list[str]:
        """Count all processes of a node as ended; return their names."""
        self._agents.pop(node, None)
        names = self._names_on(node)
        for name in names:
            self.ended(name, LostWithNode(why))
        return names

    def _names_on(self, node: str) -> list[str]:
        return [name for name, process in self._running.items() if process.node == node]

    def kill_unknown(self, survivor: Survivor) -> None:
        """Kill a process that :meth:`hello` has returned."""
        self._found.pop(survivor.peer, None)
        if agent := self._agents.get(survivor.node):
            self._send(agent, KillProcess(survivor.peer))

    # What the supervisor asks for

    def start(
        self,
        name: str,
        role: str,
        module: str,
        on_ended: OnEnded,
        extra: Mapping[str, str] | None = None,
        node: str = "",
    ) -> None:
        """Order the node's agent to start a process; see the interface. The caller knows that the node has one."""
        order = StartProcess(name, role, module, {**(extra or {}), PROOF_VARIABLE: self._prove(name)})
        self._running[name] = _NodeProcess(node, on_ended, order)
        self._send(self._agents[node], order)

    def adopt(self, survivor: Survivor, on_ended: OnEnded) -> None:
        """Take over a process that the agent's snapshot had."""
        pid = self._found.pop(survivor.peer)
        self._running[survivor.peer] = _NodeProcess(survivor.node, on_ended, pid=pid)

    def kill(self, name: str) -> None:
        """Order the node's agent to kill a process."""
        process = self._running.get(name)
        if process is not None:
            process.killed = True
            if agent := self._agents.get(process.node):
                self._send(agent, KillProcess(name))

    def give_up(self, name: str) -> None:
        """Do the same, and do not wait for the end."""
        if name in self._running:
            self._running[name].given_up = True
            self.kill(name)

    def kill_all(self) -> None:
        """Order all agents to kill their processes."""
        for name in list(self._running):
            self.kill(name)

    def has_agent(self, node: str) -> bool:
        """Return whether processes can be started on a node."""
        return node in self._agents

    def node_of(self, name: str) -> str:
        """Return the node of a process that runs."""
        return self._running[name].node

    def pid(self, name: str) -> int:
        """Return the pid that a process has on its node; 0 if it is not known."""
        process = self._running.get(name)
        return process.pid if process is not None else 0

    def resident_bytes(self, name: str, pid: int) -> int:
        """Return the resident bytes that a worker, or its engine, had when its node was read last."""
        figures = self._figures.get(name, _UNKNOWN_FIGURES)
        return figures.resident.get(pid, 0)

    def engine_pids(self, name: str, engine: EngineReady | None) -> tuple[set[int], bool]:
        """Return the pids, on its node, of a worker, of its engine, and of what else it had started when its node was read last.

        The other value says whether the engine was there then.
        """
        found = set(self._figures.get(name, _UNKNOWN_FIGURES).resident)
        if engine is None or engine.engine_pid in found:
            return found, True
        return {*found, engine.engine_pid}, False

    def held(self, name: str) -> Mapping[str, int]:
        """Return the bytes by place that what a worker has started held when its node was read last."""
        return self._figures.get(name, _UNKNOWN_FIGURES).held
