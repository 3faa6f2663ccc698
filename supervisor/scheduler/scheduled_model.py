"""What the scheduler knows about one engine of a model; :mod:`supervisor.scheduler.replicas.replica_set` has what several share."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from msgspec import Struct, structs

from protocol.failures import Failure
from protocol.ids import RequestKey
from protocol.messages.caller import Caller
from protocol.messages.models import PolicyOverrides
from protocol.models.memory import MemoryEstimate
from protocol.models.nodes import NodeNeeds
from protocol.models.recipes import ModelSpec
from protocol.state_table import next_state
from supervisor.scheduler import model_states
from supervisor.scheduler.backoff import Backoff, BackoffPolicy
from supervisor.scheduler.model_states import ModelEvent, ModelState
from supervisor.scheduler.nodes.node_search import NodeSearch
from supervisor.scheduler.queue.work_items import PendingCall, SlotGrant
from supervisor.scheduler.replicas.prefixes import KnownPrefixes
from supervisor.scheduler.replicas.replica_set import ReplicaSet, replica_key
from supervisor.scheduler.scheduled_worker import ScheduledWorker

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
    """An engine of a model that is used or requested: its state, its worker, its grants, its specs.

    Most models have one engine. Of several, each has its own state, and :class:`ReplicaSet` has what they share.
    """

    def __init__(self, replica_set: ReplicaSet, number: int, restarts: BackoffPolicy) -> None:
        """Nothing is loaded. ``number``: that of the replica, from 1."""
        self.replica_set = replica_set
        """What it shares with the other engines of its model."""
        # What never changes of that is also here, because each request needs it.
        self.name, self.type, self.policy = replica_set.name, replica_set.type, replica_set.policy
        self.queue, self.fair_share = replica_set.queue, replica_set.fair_share
        self.number = number
        self.key = replica_key(replica_set.name, number)
        """What identifies it in the scheduler, and nowhere else."""
        self.state = ModelState.ABSENT
        self.worker: ScheduledWorker | None = None
        self.keep_loaded = False
        """Whether it was loaded and is to stay so: after a death it is loaded again without a request."""
        self.spec: ModelSpec | None = None
        """What it is or will be loaded with; None while its files are not on this machine."""
        self.pending_spec: ModelSpec | None = None
        """Options to load it again with, as soon as the running requests are done."""
        self.rollback_spec: ModelSpec | None = None
        """What it was loaded with before the present options; used again if these fail."""
        self.refused_reload: RefusedReload | None = None
        self.grants: dict[RequestKey, SlotGrant] = {}
        self.abandoned: set[RequestKey] = set()
        """The granted attempts that its engine still works on, a while after their clients have left."""
        self.unloaders: list[PendingCall] = []
        self.last_use = NEVER
        self.cutoff = 0
        """Requests before this order waited for the load, and are served before the model is evicted."""
        self.returning: dict[tuple[str, int], int] = {}
        """(gateway, number) → order of requests that are about to be retried: a retry keeps its position."""
        self.unfinished: dict[RequestKey, Caller | None] = {}
        """Ended pieces of long lists whose next pieces are still to come → the request's API key."""
        self.backoff = Backoff(restarts)
        self.memory = 0
        """Measured resident bytes of its last load; 0 if unknown."""
        self.estimate = MemoryEstimate()
        """What it needed according to its last check."""
        self.search = NodeSearch()
        """Where it will be loaded."""
        self.load_began: float | None = None
        """Since when it is being loaded; None if it is not."""
        self.lacks_memory = False
        """Whether its load waits for memory."""
        self.prefixes = KnownPrefixes()
        """The prompts that its engine has read, if its model has several engines."""
        self.retiring = False
        """Whether it gets no more requests, because its model needs one engine less."""

    # What the engines of a model share

    @property
    def overrides(self) -> PolicyOverrides:
        """What calls have asked for, until the model is unloaded."""
        return self.replica_set.overrides

    @property
    def provisional(self) -> bool:
        """Whether the model is only known because of a load that has not succeeded yet."""
        return self.replica_set.provisional

    @property
    def loaders(self) -> list[PendingCall]:
        """The loads that wait for the model."""
        return self.replica_set.loaders

    @loaders.setter
    def loaders(self, calls: list[PendingCall]) -> None:
        self.replica_set.loaders = calls

    def wait_s(self, ahead: int | None = None) -> float:
        """Estimate how long a request waits: see :meth:`ReplicaSet.wait_s`."""
        return self.replica_set.wait_s(ahead)

    @property
    def is_lead(self) -> bool:
        """Whether it is the engine that requests and loads of its model wait for."""
        return self.replica_set.lead is self

    @property
    def is_needed_as_first(self) -> bool:
        """Whether it is the first of several replicas, which is there as long as any other one."""
        return self.number == 1 and len(self.replica_set.replicas) > 1

    # What is its own

    def transition(self, event: ModelEvent) -> None:
        """Move on in the lifecycle; an illegal step raises.

        Only for :mod:`supervisor.scheduler.model_changes` and :mod:`supervisor.scheduler.recovery.taken_over_models`.
        """
        self.state = next_state(model_states.TRANSITIONS, self.state, event)
        self.replica_set.index.model_moved(self)

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
        """The earliest arrival that waits for this engine to be loaded; None if nothing waits."""
        if not self.is_lead:
            return None
        orders = [caller.order for caller in self.loaders]
        if self.queue:
            orders.append(self.queue.first_order)
        return min(orders, default=None)

    @property
    def demanded(self) -> bool:
        """Whether it is to be loaded: something waits for it, or it is kept loaded."""
        return self.keep_loaded or (bool(self.queue or self.loaders) and self.is_lead)

    def may_displace(self, now: float) -> bool:
        """Return whether others may be evicted for it: something waits for it, and it is not known to fail."""
        if self.order is None:
            return False
        return not self.backoff.recently_failed(now) or any(not each.repeated for each in self.loaders)

    def expect_return(self, key: RequestKey, order: int) -> None:
        """Keep the position of a request that will be retried."""
        while len(self.returning) >= _MAX_RETURNING:
            del self.returning[next(iter(self.returning))]
        self.returning[key.gateway, key.number] = order

    def add_grant(self, key: RequestKey, grant: SlotGrant) -> None:
        """Give an attempt its slots."""
        self.grants[key] = grant
        self.replica_set.index.granted(self, key, grant)

    def end_grant(self, key: RequestKey) -> SlotGrant:
        """Take the slots of an attempt back."""
        grant = self.grants.pop(key)
        self.abandoned.discard(key)
        self.replica_set.index.ended(self, key, grant)
        self.replica_set.changed()
        return grant

    def expect_piece_after(self, key: RequestKey, caller: Caller | None) -> None:
        """A piece of a long list has ended well, and the next one is still to come."""
        self.unfinished[key] = caller
        self.replica_set.index.paused(self, key, caller)

    def expect_no_piece_after(self, key: RequestKey) -> None:
        """The piece after this one has come, or never will. This one's end may still have to be reported."""
        self.replica_set.index.forget_piece(key)
        self.replica_set.changed()
        if key in self.grants:
            self.grants[key].more = False
        if key in self.unfinished:
            self.replica_set.index.continued(self.unfinished.pop(key))

    def end_runs(self) -> None:
        """Forget all grants: the engine is gone."""
        for key in list(self.grants):
            self.end_grant(key)
        for key in list(self.unfinished):
            self.expect_no_piece_after(key)
        self.abandoned.clear()
        self.prefixes.clear()

    def used_until(self, end: float) -> None:
        """Take note of when a request ended; another model may have been used since."""
        self.last_use = max(self.last_use, end)

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
    return structs.replace(spec, size=0, labels=[], asked={}, configured="", backends=[], needs=NodeNeeds())
