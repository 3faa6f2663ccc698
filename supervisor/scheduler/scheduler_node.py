"""What the scheduler knows about one node of the server."""

from __future__ import annotations

from protocol.failures import Failure
from protocol.models.nodes import NodeFacts
from supervisor.scheduler.backoff import Backoff, BackoffPolicy
from supervisor.scheduler.memory.known_memory import KnownMemory


class SchedulerNode:
    """A machine on which workers run. Its memory, its limit on loaded models, its NPU and its spare workers are its own."""

    __slots__ = ("draining", "facts", "joined_at", "memory", "spawn_backoff", "spawn_problem")

    def __init__(self, facts: NodeFacts, restarts: BackoffPolicy, joined_at: float = 0.0) -> None:
        """Nothing was read and nothing was started there yet."""
        self.facts, self.joined_at = facts, joined_at
        self.memory = KnownMemory()
        self.draining = False
        """Whether no further model is loaded there, and those that are leave."""
        self.spawn_backoff = Backoff(restarts)
        """Failures of worker processes to start there at all."""
        self.spawn_problem: Failure | None = None
        """Why worker processes do not start there, until one does."""

    @property
    def name(self) -> str:
        """Its name: :data:`~protocol.models.nodes.HEAD` is the node of the supervisor."""
        return self.facts.name
