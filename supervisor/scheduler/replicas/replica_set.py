"""What all engines of one model share. A model has one engine, or several: its *replicas*. Pure.

Each replica is an engine with a state machine, worker, grants, backoff and memory of its own: a
:class:`~supervisor.scheduler.scheduled_model.ScheduledModel`. The first one has the name of the model as its key in the
scheduler's state, the others have keys of their own (:func:`replica_key`). What clients and operators see as the model is a :class:`ReplicaSet`: one name,
one policy, one queue, one fair share between API keys, one list of loads that wait. A model that is configured with one engine
has a set of one, in which each rule below has no effect.

* **The lead.** What waits for the model waits for one replica only, the lead: one that serves, or else the one that is nearest
  to that. Only the lead has an order of arrival, so only it evicts other models. A replica that fails or dies refuses nothing
  that another one can still serve.
* **Others follow.** While the lead is ready, `supervisor.scheduler.replicas.replication` adds replicas, one at a time, if
  they fit without an eviction, and lets those go that are too many. How many are wanted is measured in
  `supervisor.scheduler.replicas.scaling`.
* **Grants** (`supervisor.scheduler.replicas.replica_choice`). The order of the queue stays as it is. The request whose turn it is
  goes to the replica that knows the longest prefix of its prompt and has free slots, or else to the one with most free slots.
* **Calls.** A load is answered by the first replica that is ready with its options, an unload when the last one is gone. Other
  options are loaded into one replica after the other, so that the model keeps serving; if the first one does not start with
  them, the others keep theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from protocol.ids import RequestKey
from protocol.messages.models import PolicyOverrides
from protocol.models.recipes import ModelSpec
from supervisor.scheduler.due_queue import NEVER_DUE
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.policy import ModelPolicy
from supervisor.scheduler.queue.fair_share import FairShare
from supervisor.scheduler.queue.request_queue import RequestQueue
from supervisor.scheduler.queue.work_items import PendingCall
from supervisor.scheduler.replicas.scaling import ReplicaScaling
from supervisor.scheduler.state_index import StateIndex

if TYPE_CHECKING:  # a replica knows its set, and a set its replicas
    from supervisor.scheduler.scheduled_model import ScheduledModel

_SMOOTHING: Final = 0.2
_INITIAL_SERVICE_S: Final = 1.0
_SEPARATOR: Final = "\0"
"""In no name of a model: other models may be called NAME#2. Keys are not shown."""
_STATE = ModelState
_NEAREST: Final = {
    state: distance
    for distance, state in enumerate(
        (
            *(_STATE.READY, _STATE.DRAINING, _STATE.LOADING, _STATE.RESTARTING, _STATE.CHECKED, _STATE.CHECKING),
            *(_STATE.QUEUED, _STATE.RELOADING, _STATE.DOWNLOADING, _STATE.UNLOADING, _STATE.BACKING_OFF, _STATE.ABSENT),
        )
    )
}
"""How far each state is from an engine that serves."""


_SERVES_OR_WILL: Final = frozenset(_NEAREST) - {
    *(_STATE.DOWNLOADING, _STATE.UNLOADING, _STATE.BACKING_OFF, _STATE.ABSENT)
}


def replica_key(name: str, number: int) -> str:
    """Return the key of a replica in the scheduler's state: the name of its model for the first one."""
    return name if number == 1 else f"{name}{_SEPARATOR}{number}"


def model_name(key: str) -> str:
    """Return the name of the model to which a replica with this key belongs."""
    name, separator, number = key.rpartition(_SEPARATOR)
    return name if separator and number.isdigit() else key


class ReplicaSet:
    """One model, whatever its number of engines."""

    def __init__(
        self, name: str, model_type: str, policy: ModelPolicy, index: StateIndex, *, provisional: bool = False
    ) -> None:
        """Nothing waits, and there is no replica yet. The ``index`` is to be kept up to date."""
        self.index = index
        self.changed: Callable[[], None] = partial(index.models.changed, self)
        """Lets the next :func:`~supervisor.scheduler.reconcile.reconcile` look at it."""
        self.serial = next(index.serials)
        self.wake_at = NEVER_DUE
        self.name = name
        self.type = model_type
        self.policy = policy
        self.replicas: list[ScheduledModel] = []
        """In the order of their numbers; the first one is there as long as any other one."""
        self.provisional = provisional
        """Whether it is only known because of a load that has not succeeded yet: if that fails, the model is forgotten."""
        self.overrides = PolicyOverrides()
        """What calls have asked for, until it is unloaded."""
        self.rollback_overrides = PolicyOverrides()
        self.queue = RequestQueue(partial(index.queued, self), partial(index.unqueued, self))
        self.fair_share = FairShare()
        self.next_announcement = 0.0
        """Until when no gateway is told the positions of its requests in the queue."""
        self.loaders: list[PendingCall] = []
        self.service_s = 0.0
        self.scaling = ReplicaScaling(policy.min_replicas, policy.max_replicas)
        self.leaves_nodes = False
        """Whether a replica is on a node that drains."""
        self.next_replica_at = 0.0
        """Until when no further replica is tried, because one did not fit or has failed."""
        self.too_large_for_one: ModelSpec | None = None
        """What does not fit on one of its devices, and so gets all of them."""

    @property
    def lead(self) -> ScheduledModel:
        """The replica that requests and loads wait for: one that serves, or else the one that is nearest to that."""
        replicas = self.replicas
        return replicas[0] if len(replicas) == 1 else min(replicas, key=_distance)

    @property
    def serving(self) -> list[ScheduledModel]:
        """The replicas whose engines answer."""
        return [each for each in self.replicas if each.worker is not None and each.worker.serves]

    @property
    def ready(self) -> ScheduledModel | None:
        """A replica that is ready and is not to get other options; None if there is none."""
        return next((each for each in self.replicas if each.state is _STATE.READY and each.pending_spec is None), None)

    def take_returning(self, key: RequestKey) -> int | None:
        """Return the kept position of a request that is retried now; None if there is none."""
        for each in self.replicas:
            if each.returning and (order := each.returning.pop((key.gateway, key.number), None)) is not None:
                return order
        return None

    def replica(self, number: int) -> ScheduledModel | None:
        """Return a replica by its number, None if there is none."""
        return next((each for each in self.replicas if each.number == number), None)

    def is_free(self, number: int) -> bool:
        """Return whether there is no such replica, or one that is neither loaded nor to be."""
        replica = self.replica(number)
        return replica is None or not (replica.keep_loaded or replica.worker is not None)

    def has_another(self, replica: ScheduledModel) -> bool:
        """Return whether another replica than this one serves, or is on its way there."""
        return any(each is not replica and each.state in _SERVES_OR_WILL for each in self.replicas)

    def device_for(self, replica: ScheduledModel, spec: ModelSpec, node: str) -> str:
        """Return the device of the spec that a replica is to use: one with fewest others; empty: all devices.

        All if the model has one engine, or no choice of devices, or was found not to fit on one.
        """
        if self.policy.max_replicas == 1 or len(spec.devices) < 2 or self.too_large_for_one == spec:
            return ""
        workers = [each.worker for each in self.replicas if each is not replica and each.worker is not None]
        used = Counter(worker.device for worker in workers if worker.node == node)
        return min(spec.devices, key=lambda device: (used[device], spec.devices.index(device)))

    @property
    def last_use(self) -> float:
        """When the model was used last, by whichever replica."""
        return max(each.last_use for each in self.replicas)

    def measure_service(self, seconds: float) -> None:
        """Learn how long a request holds its slots."""
        self.service_s += (_SMOOTHING if self.service_s else 1.0) * (seconds - self.service_s)

    def wait_s(self, ahead: int | None = None) -> float:
        """Estimate how long a request waits, from measured service times.

        ``ahead``: requests before it, or the whole queue.
        """
        slots = max(1, sum(each.slots for each in self.replicas))
        before = (len(self.queue) if ahead is None else ahead) + sum(each.busy for each in self.replicas)
        return max(1.0, (self.service_s or _INITIAL_SERVICE_S) * before / slots)


def _distance(replica: ScheduledModel) -> tuple[int, int]:
    return _NEAREST[replica.state], replica.number
