"""What the scheduler knows about one node of the server."""

from __future__ import annotations

from typing import NamedTuple

from protocol.failures import Failure
from protocol.models.nodes import NodeFacts
from supervisor.scheduler.backoff import Backoff, BackoffPolicy
from supervisor.scheduler.due_queue import NEVER_DUE
from supervisor.scheduler.memory.known_memory import KnownMemory
from supervisor.scheduler.scheduled_worker import ScheduledWorker
from supervisor.scheduler.state_index import StateIndex


class LostNode(NamedTuple):
    """A node that was lost, and has not joined again."""

    facts: NodeFacts
    at: float
    """When it was lost."""


class SchedulerNode:
    """A machine on which workers run. Its memory, its limit on loaded models, its NPU and its spare workers are its own."""

    __slots__ = (
        *("draining", "facts", "index", "joined_at", "memory", "serial", "spawn_backoff", "spawn_problem", "wake_at"),
        "workers",
    )

    def __init__(self, facts: NodeFacts, restarts: BackoffPolicy, index: StateIndex, joined_at: float = 0.0) -> None:
        """Nothing was read and nothing was started there yet. The ``index`` is to be told of changes."""
        self.facts, self.index, self.joined_at = facts, index, joined_at
        self.serial, self.wake_at = next(index.serials), NEVER_DUE
        self.workers: dict[str, ScheduledWorker] = {}
        """Its worker processes, by id, in the order in which they were started."""
        self.memory = KnownMemory()
        self.draining = False
        """Whether no further model is loaded there, and those that are leave."""
        self.spawn_backoff = Backoff(restarts)
        """Failures of worker processes to start there at all."""
        self.spawn_problem: Failure | None = None
        """Why worker processes do not start there, until one does."""
        self.changed()

    def changed(self) -> None:
        """Let the next :func:`~supervisor.scheduler.reconcile.reconcile` look at it."""
        self.index.nodes.changed(self)

    @property
    def is_troubled(self) -> bool:
        """Whether it may be that nothing can be loaded there at present."""
        return self.draining or self.spawn_problem is not None or self.spawn_backoff.failure is not None

    @property
    def name(self) -> str:
        """Its name: :data:`~protocol.models.nodes.HEAD` is the node of the supervisor."""
        return self.facts.name
