"""What the scheduler finds without a look at all models, so that an event costs the same however many there are. Pure.

It is where attempts and workers are, what each API key has open, and which models and nodes are to be looked at. Nothing here is
known only here: models, queues and workers keep it up to date when they change.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Final

from protocol.ids import RequestKey
from protocol.messages.caller import Caller
from protocol.worker_states import WorkerState
from supervisor.scheduler.due_queue import DueQueue
from supervisor.scheduler.model_states import TO_BE_LOADED

if TYPE_CHECKING:  # models know their index
    from supervisor.scheduler.queue.work_items import QueuedRequest, SlotGrant
    from supervisor.scheduler.replicas.replica_set import ReplicaSet
    from supervisor.scheduler.scheduled_model import ScheduledModel
    from supervisor.scheduler.scheduled_worker import ScheduledWorker
    from supervisor.scheduler.scheduler_node import SchedulerNode


_MOVING: Final = set(WorkerState) - {WorkerState.READY, WorkerState.SPARE, WorkerState.GONE}


class OpenRequests:
    """The requests of one API key that wait or run; a long list also between two of its pieces."""

    __slots__ = ("requests", "running_on", "tokens")

    def __init__(self) -> None:
        """Nothing is open."""
        self.requests = 0
        self.tokens = 0
        """That they reserve."""
        self.running_on: Counter[ScheduledModel] = Counter()
        """Model → how many of them its engine works on."""


class StateIndex:
    """Where attempts and workers are, what is open by API key, and which models and nodes are to be looked at."""

    def __init__(self) -> None:
        """Nothing waits or runs."""
        self.serials = itertools.count(1)
        """The order in which models and nodes were added."""
        self.models: DueQueue[ReplicaSet] = DueQueue()
        self.nodes: DueQueue[SchedulerNode] = DueQueue()
        self.to_load: set[ScheduledModel] = set()
        """Those that have no engine yet and are to get one."""
        self.restless: set[ScheduledModel] = set()
        """Those that waited or moved when they were looked at last."""
        self.unused: set[ScheduledModel] = set()
        """Those of which nothing was left then, except the memory of their failures."""
        self.crowded: set[str] = set()
        """The nodes where more models were loaded than may be of one type when they were looked at last."""
        self.troubled: set[str] = set()
        """The nodes where nothing may be loaded at present: they drain, or worker processes did not start there last."""
        self.workers_in: dict[WorkerState, dict[str, ScheduledWorker]] = {state: {} for state in WorkerState}
        self.running: dict[RequestKey, ScheduledModel] = {}
        self.waiting: dict[RequestKey, ReplicaSet] = {}
        self.lists: dict[tuple[str, int], dict[RequestKey, ScheduledModel]] = {}
        """(gateway, number) of pieces of long lists after which another one comes → where their attempts run or have ended."""
        self._of_key: dict[str, OpenRequests] = {}

    # Models and workers

    def model_moved(self, model: ScheduledModel) -> None:
        """A model has another state."""
        (self.to_load.add if model.state in TO_BE_LOADED else self.to_load.discard)(model)
        self.models.changed(model.replica_set)

    def looked_at(self, model: ScheduledModel, *, waits_or_moves: bool) -> None:
        """A model was looked at."""
        (self.restless.add if waits_or_moves else self.restless.discard)(model)
        (self.unused.add if model.unused() else self.unused.discard)(model)

    def forget(self, model: ScheduledModel) -> None:
        """Nothing is left of an engine."""
        for each in (self.to_load, self.restless, self.unused):
            each.discard(model)

    def worker_moved(self, worker: ScheduledWorker, before: WorkerState | None) -> None:
        """A worker has another state; it is new if it had none ``before``."""
        if before is not None:
            self.workers_in[before].pop(worker.id, None)
        if worker.state is not WorkerState.GONE:
            self.workers_in[worker.state][worker.id] = worker

    @property
    def all_at_rest(self) -> bool:
        """Whether no model waits or moves, and no worker moves."""
        return not self.restless and not any(self.workers_in[state] for state in _MOVING)

    # Attempts

    def of_key(self, key: str) -> OpenRequests:
        """Return what an API key has open, to be read only."""
        return self._of_key.get(key) or OpenRequests()

    def queued(self, replica_set: ReplicaSet, waiting: QueuedRequest) -> None:
        """A request begins to wait."""
        self.waiting[waiting.key] = replica_set
        self._open(waiting.request.caller)

    def unqueued(self, replica_set: ReplicaSet, waiting: QueuedRequest) -> None:
        """A request waits no longer."""
        self.waiting.pop(waiting.key, None)
        replica_set.changed()
        self._close(waiting.request.caller)

    def granted(self, model: ScheduledModel, key: RequestKey, grant: SlotGrant) -> None:
        """An attempt gets its slots."""
        self.running[key] = model
        if grant.caller is not None:
            self._open(grant.caller, model)
        if grant.more:
            self.lists.setdefault((key.gateway, key.number), {})[key] = model

    def ended(self, model: ScheduledModel, key: RequestKey, grant: SlotGrant) -> None:
        """An attempt has lost its slots."""
        self.running.pop(key, None)
        if grant.caller is not None:
            self._close(grant.caller, model)
        if self.lists:
            self.forget_piece(key)

    def paused(self, model: ScheduledModel, key: RequestKey, caller: Caller | None) -> None:
        """A piece of a long list has ended, and the next one is still to come."""
        self.lists.setdefault((key.gateway, key.number), {})[key] = model
        self._open(caller)

    def continued(self, caller: Caller | None) -> None:
        """The piece after one that has ended has come, or never will."""
        self._close(caller)

    def forget_piece(self, key: RequestKey) -> None:
        """No other piece is expected after this attempt."""
        attempts = self.lists.get((key.gateway, key.number)) if self.lists else None
        if attempts is not None and attempts.pop(key, None) is not None and not attempts:
            del self.lists[key.gateway, key.number]

    def _open(self, caller: Caller | None, model: ScheduledModel | None = None) -> None:
        if caller is not None:
            its = self._of_key.setdefault(caller.key, OpenRequests())
            its.requests += 1
            its.tokens += caller.reserved_tokens
            if model is not None:
                its.running_on[model] += 1

    def _close(self, caller: Caller | None, model: ScheduledModel | None = None) -> None:
        if caller is not None:
            its = self._of_key[caller.key]
            its.requests -= 1
            its.tokens -= caller.reserved_tokens
            if model is not None:
                its.running_on[model] -= 1
                if not its.running_on[model]:
                    del its.running_on[model]
            if not its.requests:
                del self._of_key[caller.key]
