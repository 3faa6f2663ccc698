"""The other nodes of an earlier supervisor: their agents, and what their processes send before their agents have named them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from protocol.messages.peers import Hello
from protocol.models.nodes import NODE_SILENCE_S
from supervisor.peers.handshake import Agents, Handshake
from supervisor.processes.placement import Survivor


class TakenOverNodes:
    """What a :class:`~supervisor.recovery.takeover.Takeover` also needs on a server with a cluster."""

    timeout: Final = NODE_SILENCE_S
    """How long peers are waited for where there are other nodes: a break of a connection that is shorter loses nothing."""

    def __init__(self, agents: Agents, handshake: Handshake) -> None:
        self._agents, self._handshake = agents, handshake
        self._at_once = agents.handlers()
        self._early: list[tuple[str, Any, bytes]] = []

    def expect(self) -> Mapping[str, float]:
        """Return the agents that are to say Hello, and for how many seconds each is waited for."""
        return self._agents.expect()

    def agent_hello(self, agent: str, message: Hello, payload: bytes) -> list[Survivor]:
        """Take an agent; return its processes, which are to be adopted."""
        accepted = self._handshake.accepts(agent, message, known=True)
        return self._agents.hello(agent, message, payload) if accepted else []

    def handle(self, peer: str, message: Any, payload: bytes) -> bool:
        """Handle a message of an agent at once; return False for any other message."""
        handler = self._at_once.get(type(message))
        if handler is not None:
            handler(peer, message, payload)
        return handler is not None

    def keep(self, peer: str, message: Hello, payload: bytes) -> bool:
        """Keep the Hello of an unknown process, if its agent may still name it."""
        if message.node:
            self._early.append((peer, message, payload))
        return bool(message.node)

    def keep_later(self, peer: str, message: Any, payload: bytes) -> bool:
        """Keep what a process has sent after a Hello that is kept: a job tells its progress and its result only once."""
        kept = any(name == peer for name, *_ in self._early)
        if kept:
            self._early.append((peer, message, payload))
        return kept

    def take_early(self) -> list[tuple[str, Any, bytes]]:
        """Return and forget what was kept, in its order."""
        early, self._early = self._early, []
        return early

    def take_over(self) -> list[str]:
        """Count the nodes whose agents have not reported as lost, and tell the scheduler of the others, which are returned."""
        return self._agents.take_over()
