"""What others may know of a model, a worker, an engine or an attempt: values, as of the moment of the question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from protocol.ids import RequestKey
from protocol.messages.caller import Caller
from protocol.messages.events import Outcome
from protocol.messages.peers import EngineReady
from protocol.models.memory import MemoryEstimate
from protocol.models.nodes import HEAD
from protocol.models.recipes import ModelSpec
from protocol.times import NEVER_UNLOADED
from protocol.worker_states import WorkerState
from supervisor.scheduler import idle_ttl
from supervisor.scheduler.inputs import ModelTarget
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.queue.work_items import ShownRequest, SlotGrant
from supervisor.scheduler.scheduled_model import NEVER, ScheduledModel
from supervisor.scheduler.scheduled_worker import ScheduledWorker


class ModelView(NamedTuple):
    """A model that is used or requested, at the moment of the question. Times in seconds of the loop's clock."""

    name: str
    type: str
    state: ModelState
    spec: ModelSpec | None = None
    """What it is or will be loaded with; None while its files are not on this machine."""
    worker: str = ""
    """Its worker; empty if it has none."""
    facts: EngineReady | None = None
    """What its engine reported when it was ready, even if it is lost since."""
    serves: bool = False
    """Whether its engine answers."""
    counts_as_loaded: bool = False
    """Whether it counts towards the number of models that may be loaded."""
    keep_loaded: bool = False
    """Whether it was loaded and is to stay so: after a death it is loaded again without a request."""
    unloadable: bool = False
    """Whether there is anything that an unload could end: a worker, or a present or future load."""
    awaits_reload: bool = False
    """Whether it is to be loaded with other options as soon as its running requests have ended."""
    refused_spec: ModelSpec | None = None
    """Options that its engine did not start with, while it ran with others."""
    running: int = 0
    """Attempts that its engine works on, including reads."""
    queued: int = 0
    """Requests that wait for it."""
    slots: int = 0
    """Slots that requests may hold at once; 0 while there is no engine."""
    busy: int = 0
    """Slots in use."""
    memory: int = 0
    """Measured resident bytes of its last load; 0 if unknown."""
    need: Mapping[str, int] = {}
    """Bytes by place that it counts with; empty if it has no worker."""
    ready_at: float | None = None
    """Since when its engine answers; None if it does not."""
    last_use: float | None = None
    """When a request of it ended last; None if it was never used."""
    pinned: bool = False
    """Whether it is never evicted for another model."""
    ttl: float = NEVER_UNLOADED
    """Idle seconds after which it is unloaded; infinite if it never is."""
    expires_at: float | None = None
    """When it is unloaded if nothing uses it until then; None if it never is, or something uses it now."""

    @property
    def target(self) -> ModelTarget:
        """The model as it is or will be loaded."""
        return ModelTarget(self.name, self.type, self.spec)


class WorkerView(NamedTuple):
    """A worker process, at the moment of the question."""

    worker: str
    model: str
    """The name of its model; empty if it has none."""
    spec: ModelSpec | None
    """What its model is or will be loaded with, or the model that it checks for a dry run."""
    is_stopping: bool
    """Whether it was told to leave."""
    node: str = HEAD
    """The node that it runs on."""


class EngineView(NamedTuple):
    """An engine that answers, and the memory that was estimated for it."""

    worker: str
    facts: EngineReady
    spec: ModelSpec
    estimate: MemoryEstimate
    context: int
    """The context that was chosen for it; 0 if none was to be chosen."""


class AttemptView(NamedTuple):
    """An attempt that holds a grant, or held one until its end."""

    model: str
    caller: Caller | None
    earlier: Outcome | None
    """See :class:`~protocol.messages.work.SubmitRequest`."""


class RequestView(NamedTuple):
    """A request that runs or waits. Times in seconds of the loop's clock."""

    key: RequestKey
    model: str
    facts: ShownRequest | None
    """None after a take-over, if its gateway is gone."""
    api_key: str
    since: float
    """When it arrived."""
    granted_at: float | None = None
    """None: it waits."""
    position: int = 0
    """In the queue, from 1."""
    wait_s: float = 0.0
    """Seconds until its grant, estimated."""


class WaitingShare(NamedTuple):
    """The requests of one API key that wait for a model."""

    api_key: str
    requests: int
    wait_s: float
    """Until its next one is granted; 0: it is not among the next ones that were looked at."""


def attempt_view(model: ScheduledModel, grant: SlotGrant) -> AttemptView:
    """Return what others may know of a granted attempt."""
    return AttemptView(model.name, grant.caller, grant.earlier)


def model_view(model: ScheduledModel) -> ModelView:
    """Return what others may know of a model."""
    worker = model.worker
    return ModelView(
        model.name,
        model.type,
        model.state,
        spec=model.spec,
        worker=worker.id if worker is not None else "",
        facts=worker.facts if worker is not None else None,
        serves=worker is not None and worker.serves,
        counts_as_loaded=model.loaded,
        keep_loaded=model.keep_loaded,
        unloadable=model.unloadable,
        awaits_reload=model.pending_spec is not None,
        refused_spec=model.refused_reload.spec if model.refused_reload is not None else None,
        running=len(model.grants),
        queued=len(model.queue),
        slots=model.slots,
        busy=model.busy,
        memory=model.memory,
        need=worker.need if worker is not None else {},
        ready_at=worker.ready_at if worker is not None and worker.serves else None,
        last_use=None if model.last_use == NEVER else model.last_use,
        pinned=model.pinned,
        ttl=idle_ttl.ttl_of(model),
        expires_at=idle_ttl.expires_at(model),
    )


def worker_view(worker: ScheduledWorker) -> WorkerView:
    """Return what others may know of a worker."""
    model = worker.model
    return WorkerView(
        worker.id,
        model.name if model is not None else "",
        model.spec if model is not None else worker.plan.spec if worker.plan is not None else None,
        worker.state is WorkerState.LEAVING,
        worker.node,
    )
