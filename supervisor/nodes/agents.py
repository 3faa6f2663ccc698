"""The supervisor's side of the node agents: their Hello, their messages, their silence, and what follows from their end."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import structs

from protocol import UNDERSTOOD
from protocol.config.api_keys import without_secrets
from protocol.config.settings import Settings
from protocol.failures import Code, Failure
from protocol.messages.node_reports import NodeReport
from protocol.messages.nodes import (
    AgentSnapshot,
    ConfigureNode,
    NodeChanged,
    NodeDrains,
    NodeLeaves,
    NodeRead,
    ProcessEnded,
)
from protocol.messages.peers import Hello, Ping, Shutdown
from protocol.models.nodes import NODE_SILENCE_S
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.wire import envelope
from supervisor.bus.hello_check import RefusalCounts
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.bus.sockets import SupervisorBus
from supervisor.nodes.node_devices import NodeDevices
from supervisor.nodes.node_memory_reader import NodeMemoryReader
from supervisor.nodes.node_placement import NodePlacement
from supervisor.nodes.node_registry import PING_INTERVAL_S, UNREACHABLE_S, Node, NodeRegistry
from supervisor.nodes.node_states import NodeConnection
from supervisor.persistence.server_record import ServerRecord
from supervisor.processes.placement import Survivor
from supervisor.runtime.decisions import Decisions
from supervisor.runtime.handler_table import Handler
from supervisor.scheduler.scheduler import Scheduler

_LEFT_BEHIND_S: Final = 1.0
"""How long after its node was lost a worker is told to end, if it can still be reached.

Its gateways must first have heard what has happened: otherwise they would read that the worker was told to end.
"""

_SHOWN_MEMORY_S: Final = 2.0
"""Age of a reading of a node's memory that is shown without another one."""
END_S: Final = 2.0
"""How long agents may take to say that they leave, when the server ends."""

log = logs.get_logger()


class NodeAgents:
    """All agents."""

    def __init__(
        self,
        settings: Settings,
        loop: Loop,
        bus: SupervisorBus,
        peers: PeerRegistry,
        placement: NodePlacement,
        record: ServerRecord,
        scheduler: Scheduler,
        decisions: Decisions,
        devices: NodeDevices,
    ) -> None:
        """No node has joined yet. ``devices``: those of the nodes."""
        self._settings, self._loop, self._bus, self._peers = settings, loop, bus, peers
        self._placement, self._record, self._scheduler, self._decisions = placement, record, scheduler, decisions
        self._registry = NodeRegistry()
        self._refusals = RefusalCounts()
        """By node: an agent that is refused says Hello again and again."""
        self._pings = itertools.count()
        self.memory = NodeMemoryReader(
            loop=loop,
            bus=bus,
            registry=self._registry,
            placement=placement,
            scheduler=scheduler,
            devices=devices,
        )
        """Reads the memory of nodes."""
        self.on_joined: Callable[[Node], None] = lambda _node: None
        """Called with a node that is in the server, also when it says something else of itself."""
        self.on_left: Callable[[str], None] = lambda _node: None
        """Called with a node that is not in the server any more."""
        self._ends_at: float | None = None
        """When this server no longer waits for its agents."""
        self.keep: Callable[[dict[str, str]], None] = lambda _agents: None
        """Keeps node → agent for a start after the death of the head."""
        self.welcome: Callable[[str, Hello], None] = lambda _agent, _hello: None
        """Registers an agent and answers its Hello."""

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages, for which no transition waits."""
        return {
            ProcessEnded: self._process_ended,
            NodeChanged: self._node_changed,
            NodeRead: self.memory.take,
            NodeDrains: self._node_drains,
            NodeLeaves: self._node_leaves,
        }

    def has_nodes(self) -> bool:
        """Return whether there is another node than the head, missing ones included."""
        return self._registry.has_nodes

    def reports(self) -> list[NodeReport]:
        """Return what is known of all nodes but the head, by name; also of those that are missing.

        Old figures of their memory are read again, for the next report.
        """
        now = self._loop.now()
        for node in self._registry.nodes():
            if node.state is NodeConnection.READY and now - node.memory_read_at > _SHOWN_MEMORY_S:
                self.memory.read(node.name)
        known = [*self._registry.nodes(), *self._registry.missing()]
        return [node.report(now) for node in sorted(known, key=lambda node: node.name)]

    def start(self) -> None:
        """Ping the agents from now on."""
        self._loop.every(PING_INTERVAL_S, self._look)

    # Hello

    def expect(self) -> dict[str, float]:
        """Expect the agents of an earlier supervisor; return for how many seconds each. It may have noticed their silence."""
        silent = self._record.silent_nodes
        for name, agent in self._record.agents.items():
            self._registry.expect(name, agent, self._loop.now())
        return {
            node.agent: max(UNREACHABLE_S, NODE_SILENCE_S - silent.get(node.name, 0.0))
            for node in self._registry.expected()
        }

    def hello(self, agent: str, message: Hello, payload: bytes) -> list[Survivor]:
        """Take an agent, or tell it to end its processes; return those of its processes that this supervisor does not know."""
        now = self._loop.now()
        if message.version not in UNDERSTOOD:
            why = f"version {message.version} of the protocol is not understood: install the server's release there"
            return self._refused(agent, message.node, Shutdown(0.0, why, draining=True, refused=True))
        if self._scheduler.view.closing:
            return self._refused(agent, message.node, Shutdown(0.0, "the server ends", draining=True))
        try:
            snapshot: AgentSnapshot = envelope.unpack_payload(payload, AgentSnapshot)
        except envelope.MalformedError as problem:
            return self._refused(agent, message.node, Shutdown(0.0, f"its snapshot cannot be used: {problem}"))
        facts = snapshot.facts
        why = self._registry.why_refused(facts.name, agent, now)
        if why or facts.name != message.node:
            why = why or f"its Hello names node {message.node}"
            return self._refused(agent, facts.name, Shutdown(0.0, why))
        self._refusals.forget(facts.name)
        self.memory.forget(facts.name)  # its answer may be lost with the former connection
        is_new = self._registry.get(facts.name) is None
        node = self._registry.hello(facts, agent, now)
        node.hardware = snapshot.hardware
        node.note_drain(snapshot.drains, now)
        self.welcome(agent, message)
        self._bus.send(agent, ConfigureNode(self._settings.grace), self._settings_for_nodes())
        unknown = self._placement.hello(node.name, agent, snapshot)
        fields = {"node": node.name, "agent": agent, "processes": len(snapshot.processes)}
        if is_new:
            log.info("node joined", **fields)
        else:
            log.warning("node connected again", **fields)
        if self._decisions.suspended:
            return unknown  # the scheduler learns of the nodes when everything is taken over
        self._joined(node)
        for survivor in unknown:
            self._placement.kill_unknown(survivor)
        return []

    def _refused(self, agent: str, node: str, answer: Shutdown) -> list[Survivor]:
        if times := self._refusals.count(node):
            log.warning("node agent refused", node=node, agent=agent, reason=answer.reason, times=times)
        self._bus.forget(agent)  # before the last word, which may have to wait
        self._bus.send(agent, answer)
        return []

    def _settings_for_nodes(self) -> bytes:
        """Return the settings that processes of other nodes need; they serve no clients, so they get not even digests of keys."""
        return msgspec.json.encode(structs.replace(without_secrets(self._settings), api_key="", admin_api_key=""))

    def _joined(self, node: Node) -> None:
        self._scheduler.node_joined(node.facts, self._loop.now())
        self._scheduler.node_drains(node.name, bool(node.drains) or node.name in self._record.drained_nodes)
        self.memory.read(node.name)
        self._write_record()
        self.on_joined(node)

    def take_over(self) -> list[str]:
        """Tell the scheduler which nodes there are, before it learns what runs there. Those that have not reported are lost."""
        for node in self._registry.expected():
            self._lost(node, f"node {node.name} has not reported to this supervisor")
        nodes = self._registry.nodes()
        for node in nodes:
            self._joined(node)
        return [node.name for node in nodes]

    # What agents say

    def _process_ended(self, agent: str, message: ProcessEnded, _payload: bytes) -> None:
        node = self._registry.of_agent(agent)
        if node is not None:
            self._placement.ended_on(node.name, message.name, message.why)

    def _node_changed(self, agent: str, message: NodeChanged, _payload: bytes) -> None:
        node = self._registry.of_agent(agent)
        if node is not None and message.facts.name == node.name:
            node.facts, node.hardware = message.facts, message.hardware or node.hardware
            if not self._decisions.suspended:
                self._joined(node)

    def _node_drains(self, agent: str, message: NodeDrains, _payload: bytes) -> None:
        """Let the models of a node leave it. Its next agent begins without a drain; that of an operator goes on."""
        node = self._registry.of_agent(agent)
        if node is not None:
            log.info("node drains", node=node.name, reason=message.why)
            node.note_drain(message.why, self._loop.now())
            self._scheduler.node_drains(node.name, True)
            self._decisions.reconcile()

    def _node_leaves(self, agent: str, message: NodeLeaves, _payload: bytes) -> None:
        node = self._registry.of_agent(agent)
        if node is not None:
            self._lost(node, f"node {node.name} leaves the server: {message.why}", missing=False)

    # Silence and ends

    def _look(self) -> None:
        now = self._loop.now()
        for node in self._registry.nodes():
            node.last_seen = max(node.last_seen, self._peers.last_seen(node.agent))
        found = self._registry.look(now)
        for node in found.unreachable:
            log.warning("node does not answer", node=node.name, agent=node.agent)
        for node in found.back:
            log.info("node answers again", node=node.name, agent=node.agent)
        for node in found.lost:
            self._lost(node, f"node {node.name} is not reachable")
        if found.unreachable or found.back:
            self._write_record()
        number = next(self._pings)
        for node in self._registry.nodes():
            if node.is_known:
                self._bus.send(node.agent, Ping(number))

    def unread(self, agent: str) -> None:
        """Give an agent up that leaves too many messages unread."""
        node = self._registry.of_agent(agent)
        if node is not None and node.is_known:
            self._lost(node, f"the agent of node {node.name} does not read its messages")

    def _lost(self, node: Node, why: str, *, missing: bool = True) -> None:
        """Count everything on a node as ended. Its agent is told so if it says Hello again. ``missing``: it was not told to leave."""
        (log.error if missing else log.warning)("node lost", node=node.name, agent=node.agent, reason=why)
        self._registry.lost(node, self._loop.now(), missing=missing)
        self.memory.forget(node.name)
        self._peers.remove(node.agent)
        self._bus.forget(node.agent)
        self._bus.send(node.agent, Shutdown(0.0, why))
        # The scheduler would load the model of the first one at another worker of this node, which is the next to end.
        suspended, self._decisions.suspended = self._decisions.suspended, True
        try:
            processes = self._placement.lost(node.name, why)
            self._scheduler.node_left(node.name, Failure(Code.NODE_LOST, why), self._loop.now(), may_return=missing)
        finally:
            self._decisions.suspended = suspended
        self.on_left(node.name)
        self._write_record()
        self._loop.call_later(_LEFT_BEHIND_S, lambda: self._dismiss(processes, why))
        self._decisions.reconcile()

    def _dismiss(self, processes: list[str], why: str) -> None:
        """Tell the processes of a lost node to end: the agent alone may be stopped, and its processes may be connected."""
        for name in processes:
            self._bus.send(name, Shutdown(0.0, why))

    def end(self) -> bool:
        """Tell all agents that the server ends; return whether all have left, or have had :data:`END_S` for it.

        A last word before the end of a connection may be lost with it, so this server waits for theirs.
        """
        if self._ends_at is None:
            self._ends_at = self._loop.now() + END_S
            for node in self._registry.nodes():
                self._bus.send(node.agent, Shutdown(0.0, "the server ends", draining=True))
        return not self._registry.nodes() or self._loop.now() >= self._ends_at

    def _write_record(self) -> None:
        agents = {node.name: node.agent for node in self._registry.nodes()}
        if agents != self._record.agents:
            self._record.set_agents(agents)
            self.keep(agents)
        now, unreachable = self._loop.now(), NodeConnection.UNREACHABLE
        silent = {node.name: now - node.last_seen for node in self._registry.nodes() if node.state is unreachable}
        self._record.set_silent_nodes(silent)
