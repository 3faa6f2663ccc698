"""What the scheduler knows: seats (worker processes), places (models somebody wants) and who waits there."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct, structs

from protocol.failures import Failure
from protocol.ids import RequestKey
from protocol.messages.admin import OptionValue
from protocol.messages.peers import EngineReady
from protocol.messages.work import SubmitRequest
from protocol.models.recipes import ModelSpec
from supervisor.scheduler.backoff import Backoff, BackoffPolicy
from supervisor.scheduler.worker_lifecycle import COUNTS_AS_LOADED, SERVING, WorkerEvent, WorkerState, next_state

_SMOOTHING: Final = 0.2
_INITIAL_SERVICE_S: Final = 1.0
NEVER: Final = -math.inf
"""When a model was used that never was."""
END_NOTICE_DELAY_S: Final = 0.01
"""An end may be told so late (``protocol/README.md``): another model may have been used since."""
BURST_WINDOW_S: Final = 0.25
"""How soon after the last use of a model another request follows it closely: then it is worth lending slots for more."""


class QueuedRequest:
    """A request that waits for a slot, with its place in the order of arrival."""

    __slots__ = ("ask", "key", "order", "payload", "since")

    def __init__(self, key: RequestKey, ask: SubmitRequest, payload: bytes, order: int, since: float) -> None:
        """Remember what to run, and since when it waits (monotonic seconds)."""
        self.key = key
        self.ask = ask
        self.payload = payload
        self.order = order
        self.since = since


class PendingCall:
    """A call (load, unload) that waits for its answer."""

    __slots__ = ("number", "options", "order", "peer", "spec")

    def __init__(
        self,
        peer: str,
        number: int,
        order: int,
        spec: ModelSpec | None = None,
        options: Mapping[str, OptionValue] | None = None,
    ) -> None:
        """``peer`` waits under its ``number``, to have it loaded as ``spec`` says, or however it is.

        ``options``: what the load asked for while the model was not downloaded, so that there was no spec yet.
        """
        self.peer = peer
        self.number = number
        self.order = order
        self.spec = spec
        self.options = options or {}


class ScheduledWorker:
    """One worker process."""

    __slots__ = ("facts", "idle_since", "memory", "model", "spawned_at", "state", "worker")

    def __init__(self, worker: str, spawned_at: float) -> None:
        """A process that was just spawned, at that time."""
        self.worker = worker
        self.spawned_at = spawned_at
        self.idle_since: float | None = None
        """Since when it is a spare; None if it is none, or only since a moment."""
        self.state = WorkerState.SPAWNED
        self.model: ScheduledModel | None = None
        self.facts: EngineReady | None = None
        self.memory = 0

    def transition(self, event: WorkerEvent) -> None:
        """Go on in the lifecycle; an illegal step raises."""
        self.state = next_state(self.state, event)

    @property
    def counts_as_loaded(self) -> bool:
        """Whether it counts against the loaded places."""
        return self.model is not None and self.state in COUNTS_AS_LOADED

    @property
    def serves(self) -> bool:
        """Whether its engine answers."""
        return self.state in SERVING


class SlotGrant:
    """Slots that one attempt holds at a seat."""

    __slots__ = ("began", "order", "weight")

    def __init__(self, weight: int, began: float, order: int) -> None:
        """``weight`` slots since ``began``."""
        self.weight = weight
        self.began = began
        self.order = order


class SlotLease:
    """Slots of a seat that a gateway uses without asking."""

    __slots__ = ("names", "number", "orphaned", "recalled", "running", "slots")

    def __init__(self, number: int) -> None:
        """Nothing is lent yet."""
        self.number = number
        self.slots = 0
        self.names: set[tuple[str, str]] = set()
        """(what clients call the model, endpoint) that it is good for."""
        self.running: dict[RequestKey, int] = {}
        """What is known to run under it, and its slots; what ends soon is never heard of."""
        self.recalled = False
        self.orphaned = False
        """Its gateway is gone."""


class RefusedReload(NamedTuple):
    """Options that a model's engine would not start with, while it ran with others."""

    spec: ModelSpec
    failure: Failure
    until: float
    """Until then it is not ended for them again."""


class ScheduledModel:
    """A model that somebody uses or wants: its seat, its grants, its queue."""

    def __init__(self, name: str, model_type: str, policy: BackoffPolicy, *, provisional: bool = False) -> None:
        """Nothing loaded, nothing waiting."""
        self.name = name
        self.type = model_type
        self.provisional = provisional
        """It is only known because of a load that has not succeeded yet: if it fails, nothing is remembered of it."""
        self.spec: ModelSpec | None = None
        self.process: ScheduledWorker | None = None
        self.grants: dict[RequestKey, SlotGrant] = {}
        self.leases: dict[str, SlotLease] = {}
        """By gateway."""
        self.unwanted: set[RequestKey] = set()
        """What its engine works on although nobody wants it any more, for a while."""
        self.recalled = 0.0
        self.lend_pause = 0.0
        """When its leases were recalled the last time, and how long nothing is lent from then on: it would be again."""
        self.queue: list[QueuedRequest] = []
        self.queued_bytes = 0
        self.loaders: list[PendingCall] = []
        self.unloaders: list[PendingCall] = []
        self.pinned = False
        self.wanted = False
        """It was ready and died: it comes back without anybody's request."""
        self.fetching = False
        self.refusal: RefusedReload | None = None
        self.reload_spec: ModelSpec | None = None
        """Load again with these options as soon as the running requests are done."""
        self.previous_spec: ModelSpec | None = None
        """What it was loaded with before that: again, if it cannot be loaded with those."""
        self.previous_pinned = False
        self.last_use = NEVER
        self.cutoff = 0
        """Whoever came before this order waited for the load, and is served before the model makes room."""
        self.returning: dict[tuple[str, int], int] = {}
        """Order of requests whose engine died under them, so that their retry keeps its turn."""
        self.backoff = Backoff(policy)
        self.service_s = 0.0
        self.memory = 0
        """Measured resident bytes of its last load, 0 if unknown."""

    @property
    def busy(self) -> int:
        """Slots that may be in use: granted or lent."""
        lent = sum(lease.slots for lease in self.leases.values()) if self.leases else 0
        return sum(grant.weight for grant in self.grants.values()) + lent

    @property
    def running(self) -> int:
        """Slots known to be in use."""
        lent = sum(sum(lease.running.values()) for lease in self.leases.values())
        return sum(grant.weight for grant in self.grants.values()) + lent

    @property
    def needed(self) -> bool:
        """Whether somebody may still want something of what its engine does."""
        return bool(self.leases) or not self.grants.keys() <= self.unwanted

    @property
    def stuck(self) -> bool:
        """Whether its engine works on for clients that are gone, and keeps nothing that a restart would lose."""
        return bool(self.grants) and not self.needed and self.spec is not None and self.spec.restartable

    @property
    def slots(self) -> int:
        """Slots its engine has, 0 while there is none."""
        return self.process.facts.slots if self.process and self.process.facts and self.process.serves else 0

    @property
    def loaded(self) -> bool:
        """Whether it takes one of the loaded places."""
        return self.process is not None and self.process.counts_as_loaded

    @property
    def unloadable(self) -> bool:
        """Whether there is anything that an unload could end: a worker, or a load that is under way or comes by itself."""
        return self.process is not None or self.wanted or self.order is not None

    @property
    def order(self) -> int | None:
        """The earliest arrival that waits for this model to be loaded, None if nobody does."""
        orders = [caller.order for caller in self.loaders]
        if self.queue:
            orders.append(self.queue[0].order)
        return min(orders, default=None)

    def follows_closely(self, now: float) -> bool:
        """Return whether a request that comes now follows another closely."""
        return bool(self.grants) or bool(self.leases) or now - self.last_use < BURST_WINDOW_S

    def enqueue(self, waiting: QueuedRequest) -> None:
        """Let a request wait in the order of arrival."""
        bisect.insort(self.queue, waiting, key=lambda other: other.order)
        self.queued_bytes += waiting.ask.size

    def dequeue(self, key: RequestKey) -> bool:
        """Take a request out of the queue; return whether it was there."""
        for index, waiting in enumerate(self.queue):
            if waiting.key == key:
                del self.queue[index]
                self.queued_bytes -= waiting.ask.size
                return True
        return False

    def take_all(self) -> list[QueuedRequest]:
        """Empty the queue and return it."""
        queue, self.queue, self.queued_bytes = self.queue, [], 0
        return queue

    def end_runs(self) -> None:
        """Nothing runs any more: its engine is gone."""
        self.grants.clear()
        self.leases.clear()
        self.unwanted.clear()

    def ended(self, now: float) -> None:
        """Take note that a request has ended, of which it was told now."""
        self.last_use = max(self.last_use, now - END_NOTICE_DELAY_S)

    def served(self, seconds: float) -> None:
        """Learn how long a request holds its slots."""
        self.service_s += (_SMOOTHING if self.service_s else 1.0) * (seconds - self.service_s)

    def wait_s(self) -> float:
        """Estimate how long the end of the queue waits, from measured service time."""
        slots = max(1, self.slots)
        return max(1.0, (self.service_s or _INITIAL_SERVICE_S) * (len(self.queue) + self.running) / slots)

    def idle(self) -> bool:
        """Return whether nothing runs and nobody waits."""
        return not self.grants and not self.leases and not self.queue and not self.loaders and not self.unloaders

    def unused(self) -> bool:
        """Return whether there is nothing of it but what is remembered of its failures."""
        return self.idle() and self.process is None and not self.wanted and not self.fetching


def with_model(model: ScheduledModel, failure: Failure) -> Failure:
    """Return ``failure`` with the model's name in it."""
    return failure if failure.model else structs.replace(failure, model=model.name)


def needs_new_engine(one: ModelSpec, other: ModelSpec) -> bool:
    """Return whether two specs of a model need different engines."""
    return _engine_spec(one) != _engine_spec(other)


def _engine_spec(spec: ModelSpec) -> Struct:
    return structs.replace(spec, pinned=False, size=0, labels=[])
