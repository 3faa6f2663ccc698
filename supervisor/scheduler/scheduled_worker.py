"""What the scheduler knows about one worker process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from protocol import worker_states
from protocol.messages.engines import EngineReady, LoadProgressed
from protocol.messages.models import PolicyOverrides
from protocol.models.memory import Capacity, MemoryEstimate
from protocol.models.nodes import HEAD
from protocol.models.recipes import ModelSpec
from protocol.state_table import next_state
from protocol.worker_states import WorkerEvent, WorkerState
from supervisor.scheduler.memory.fitting import ModelMemory

if TYPE_CHECKING:  # a model knows its worker, and a worker its model
    from supervisor.scheduler.scheduled_model import ScheduledModel

_COUNTS_AS_LOADED: Final = frozenset(
    {WorkerState.LOADING, WorkerState.READY, WorkerState.DRAINING, WorkerState.ENGINE_LOST, WorkerState.LEAVING}
)
"""States in which a worker with a model may have an engine, and so counts towards the models that may be loaded."""
_ENDING: Final = frozenset({WorkerState.LEAVING, WorkerState.GONE})
_SERVING: Final = frozenset({WorkerState.READY, WorkerState.DRAINING})
"""States in which an engine answers."""


class Eviction(NamedTuple):
    """Why the engine of a model was told to stop for another model."""

    model: str
    request: str
    """What the other model was loaded for: the id of a request, or ``load``."""
    reason: str
    idle_s: float | None
    """Since its last use; None if it was never used."""
    free: Mapping[str, Capacity]
    """The memory before it left."""


class PendingPlan:
    """A dry run of a load: its caller, the model, and what it needs once a worker has checked it."""

    __slots__ = ("begun", "checks", "estimate", "node", "number", "peer", "spec")

    def __init__(self, peer: str, number: int, spec: ModelSpec) -> None:
        """Nothing is checked yet."""
        self.peer, self.number, self.spec = peer, number, spec
        self.begun = False
        """Whether a worker was told to check it."""
        self.node = ""
        """The node of that worker; before, the one that was chosen."""
        self.estimate: MemoryEstimate | None = None
        self.checks: dict[str, MemoryEstimate] = {}
        """Node → what a check there has found."""


class ScheduledWorker:
    """One worker process."""

    __slots__ = (
        *(
            "backend",
            "context",
            "device",
            "estimate",
            "eviction",
            "facts",
            "held",
            "id",
            "idle_since",
            "model",
            "need",
            "node",
        ),
        *("plan", "progress", "ready_at", "remembered", "spawned_at", "state", "_moved"),
    )

    def __init__(
        self,
        worker_id: str,
        spawned_at: float,
        node: str = HEAD,
        moved: Callable[[ScheduledWorker, WorkerState], None] = lambda *_: None,
    ) -> None:
        """A worker whose process was just spawned, at that time, on that node. ``moved`` is called with its last state."""
        self._moved = moved
        self.id = worker_id
        self.node = node
        self.backend = ""
        """What runs its model, if that is not the backend of the spec: its node is not the head."""
        self.device = ""
        """The one of the spec's devices that its engine uses, as one of several engines; empty: all of them."""
        self.spawned_at = spawned_at
        self.idle_since: float | None = None
        """Since when it is a spare; None if it is not one, or has just become one."""
        self.state = WorkerState.SPAWNED
        self.model: ScheduledModel | None = None
        self.plan: PendingPlan | None = None
        """The dry run that it checks a model for."""
        self.facts: EngineReady | None = None
        self.estimate = MemoryEstimate()
        """What its model needs, according to its last check."""
        self.ready_at: float | None = None
        """When its engine became ready; None if it has not."""
        self.need: Mapping[str, int] = {}
        """Bytes by place that its engine was started with."""
        self.context = 0
        """The context that was chosen for its engine; 0 if none was to be chosen."""
        self.held: Mapping[str, int] = {}
        """Bytes by place that its engine held when that was read last; places without a reading are missing."""
        self.progress: LoadProgressed | None = None
        """How far its engine is, if it has said so since its start."""
        self.eviction: Eviction | None = None
        """Why it was told to stop, if that was for another model."""
        self.remembered = PolicyOverrides()
        """What it was told to remember about its model."""

    def transition(self, event: WorkerEvent) -> None:
        """Move on in the lifecycle; an illegal step raises."""
        before = self.state
        self.state = next_state(worker_states.TRANSITIONS, before, event)
        self._moved(self, before)

    @property
    def memory(self) -> ModelMemory:
        """What its engine takes. Where nothing was read, an engine has all that it needs once it was ready, and nothing before."""
        was_ready = self.serves or (self.state in _ENDING and self.facts is not None)
        return ModelMemory(self.need, {**(self.need if was_ready else {}), **self.held})

    @property
    def counts_as_loaded(self) -> bool:
        """Whether it counts towards the number of models that may be loaded."""
        return self.model is not None and self.state in _COUNTS_AS_LOADED

    @property
    def serves(self) -> bool:
        """Whether its engine answers."""
        return self.state in _SERVING
