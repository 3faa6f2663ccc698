"""What the scheduler knows about one model."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from msgspec import Struct, structs

from protocol.failures import Failure
from protocol.ids import RequestKey
from protocol.messages.caller import Caller
from protocol.messages.models import PolicyOverrides
from protocol.models.memory import MemoryEstimate
from protocol.models.recipes import ModelSpec
from protocol.state_table import next_state
from supervisor.scheduler import model_states
from supervisor.scheduler.backoff import Backoff, BackoffPolicy
from supervisor.scheduler.model_states import ModelEvent, ModelState
from supervisor.scheduler.policy import ModelPolicy
from supervisor.scheduler.queue.fair_share import FairShare
from supervisor.scheduler.queue.request_queue import RequestQueue
from supervisor.scheduler.queue.work_items import PendingCall, SlotGrant
from supervisor.scheduler.scheduled_worker import ScheduledWorker

_SMOOTHING: Final = 0.2
_INITIAL_SERVICE_S: Final = 1.0
NEVER: Final = -math.inf
"""The time of last use of a model that was never used."""
_MAX_RETURNING: Final = 1024


class RefusedReload(NamedTuple):
    """Options that a model's engine did not start with, while it ran with others."""

    spec: ModelSpec
    failure: Failure
    until: float
    """Until when it is not ended for them again."""


class ScheduledModel:
    """A model that is used or requested: its state, its worker, its grants, its queue."""

    def __init__(
        self,
        name: str,
        model_type: str,
        restarts: BackoffPolicy,
        policy: ModelPolicy = ModelPolicy(),  # noqa: B008 - a frozen value
        *,
        provisional: bool = False,
    ) -> None:
        """Nothing is loaded, nothing waits."""
        self.name = name
        self.type = model_type
        self.policy = policy
        self.state = ModelState.ABSENT
        self.worker: ScheduledWorker | None = None
        self.keep_loaded = False
        """Whether it was loaded and is to stay so: after a death it is loaded again without a request."""
        self.provisional = provisional
        """Whether it is only known because of a load that has not succeeded yet: if that fails, the model is forgotten."""
        self.spec: ModelSpec | None = None
        """What it is or will be loaded with; None while its files are not on this machine."""
        self.pending_spec: ModelSpec | None = None
        """Options to load it again with, as soon as the running requests are done."""
        self.rollback_spec: ModelSpec | None = None
        """What it was loaded with before the present options; used again if these fail."""
        self.overrides = PolicyOverrides()
        """What calls have asked for, until it is unloaded."""
        self.rollback_overrides = PolicyOverrides()
        self.refused_reload: RefusedReload | None = None
        self.grants: dict[RequestKey, SlotGrant] = {}
        self.abandoned: set[RequestKey] = set()
        """The granted attempts that its engine still works on, a while after their clients have left."""
        self.queue = RequestQueue()
        self.next_announcement = NEVER
        """Until when no gateway is told the positions of its requests in the queue."""
        self.loaders: list[PendingCall] = []
        self.unloaders: list[PendingCall] = []
        self.last_use = NEVER
        self.cutoff = 0
        """Requests before this order waited for the load, and are served before the model is evicted."""
        self.returning: dict[tuple[str, int], int] = {}
        """(gateway, number) → order of requests that are about to be retried: a retry keeps its position."""
        self.unfinished: dict[tuple[str, int], Caller | None] = {}
        """(gateway, number) of ended pieces of long lists whose next pieces are still to come → the request's API key."""
        self.backoff = Backoff(restarts)
        self.fair_share = FairShare()
        self.service_s = 0.0
        self.memory = 0
        """Measured resident bytes of its last load; 0 if unknown."""
        self.estimate = MemoryEstimate()
        """What it needed according to its last check."""
        self.load_began: float | None = None
        """Since when it is being loaded; None if it is not."""
        self.lacks_memory = False
        """Whether its load waits for memory."""

    def transition(self, event: ModelEvent) -> None:
        """Move on in the lifecycle; an illegal step raises.

        Only for :mod:`supervisor.scheduler.model_changes` and :mod:`supervisor.scheduler.recovery.taken_over_models`.
        """
        self.state = next_state(model_states.TRANSITIONS, self.state, event)

    @property
    def busy(self) -> int:
        """Slots in use."""
        return sum(grant.weight for grant in self.grants.values())

    @property
    def reads(self) -> int:
        """Reads that its engine is answering."""
        return sum(not grant.weight for grant in self.grants.values())

    def reads_of(self, key: str) -> int:
        """Return how many reads of an API key (empty for none) its engine is answering."""
        return sum(not each.weight and (each.caller.key if each.caller else "") == key for each in self.grants.values())

    @property
    def has_clients(self) -> bool:
        """Whether a client may still want something that its engine does."""
        return not self.grants.keys() <= self.abandoned

    @property
    def serves_to_the_end(self) -> bool:
        """Whether its engine serves the rest of what has begun if the server ends."""
        leaves = bool(self.unloaders) or self.pending_spec is not None
        return self.worker is not None and self.worker.serves and not leaves

    @property
    def stuck(self) -> bool:
        """Whether its engine only works for clients that are gone, and keeps nothing that a restart would lose."""
        return bool(self.grants) and not self.has_clients and self.spec is not None and self.spec.restartable

    @property
    def engine_slots(self) -> int:
        """Slots of its engine; 0 while there is none."""
        return self.worker.facts.slots if self.worker and self.worker.facts and self.worker.serves else 0

    @property
    def slots(self) -> int:
        """Slots that requests may hold at once; 0 while there is no engine."""
        slots = self.engine_slots
        return min(slots, self.policy.concurrency or slots)

    @property
    def pinned(self) -> bool:
        """Whether it is never evicted for another model."""
        return self.policy.pin if self.overrides.pinned is None else self.overrides.pinned

    @property
    def loaded(self) -> bool:
        """Whether it counts towards the number of models that may be loaded."""
        return self.worker is not None and self.worker.counts_as_loaded

    @property
    def unloadable(self) -> bool:
        """Whether there is anything that an unload could end: a worker, or a present or future load."""
        return self.worker is not None or self.demanded

    @property
    def order(self) -> int | None:
        """The earliest arrival that waits for this model to be loaded; None if nothing waits."""
        orders = [caller.order for caller in self.loaders]
        if self.queue:
            orders.append(self.queue.first_order)
        return min(orders, default=None)

    @property
    def demanded(self) -> bool:
        """Whether it is to be loaded: something waits for it, or it is kept loaded."""
        return self.keep_loaded or bool(self.queue) or bool(self.loaders)

    def expect_return(self, key: RequestKey, order: int) -> None:
        """Keep the position of a request that will be retried."""
        while len(self.returning) >= _MAX_RETURNING:
            del self.returning[next(iter(self.returning))]
        self.returning[key.gateway, key.number] = order

    def end_runs(self) -> None:
        """Forget all grants: the engine is gone."""
        self.grants.clear()
        self.unfinished.clear()
        self.abandoned.clear()

    def used_until(self, end: float) -> None:
        """Take note of when a request ended; another model may have been used since."""
        self.last_use = max(self.last_use, end)

    def measure_service(self, seconds: float) -> None:
        """Learn how long a request holds its slots."""
        self.service_s += (_SMOOTHING if self.service_s else 1.0) * (seconds - self.service_s)

    def wait_s(self, ahead: int | None = None) -> float:
        """Estimate how long a request waits, from measured service times.

        ``ahead``: requests before it, or the whole queue.
        """
        slots = max(1, self.slots)
        before = (len(self.queue) if ahead is None else ahead) + self.busy
        return max(1.0, (self.service_s or _INITIAL_SERVICE_S) * before / slots)

    def unused(self) -> bool:
        """Return whether nothing of it is left except the memory of its failures."""
        at_rest = self.state in (ModelState.ABSENT, ModelState.BACKING_OFF)
        return at_rest and not (self.demanded or self.grants or self.unloaders)


def with_model(model: ScheduledModel, failure: Failure) -> Failure:
    """Return ``failure`` with the model's name in it."""
    return failure if failure.model else structs.replace(failure, model=model.name)


def needs_new_engine(one: ModelSpec, other: ModelSpec) -> bool:
    """Return whether two specs of a model need different engines."""
    return _engine_spec(one) != _engine_spec(other)


def satisfies(wanted: ModelSpec | None, spec: ModelSpec | None) -> bool:
    """Return whether a model that is loaded with ``spec`` serves a load of ``wanted``; None means any spec."""
    return wanted is None or spec is None or not needs_new_engine(wanted, spec)


def _engine_spec(spec: ModelSpec) -> Struct:
    return structs.replace(spec, size=0, labels=[], asked={}, configured="")
