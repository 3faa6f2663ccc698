"""What others may know of a model, a worker, an engine or an attempt: values, as of the moment of the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from protocol.ids import RequestKey
from protocol.messages.caller import Caller
from protocol.messages.engines import EngineReady
from protocol.messages.events import Outcome
from protocol.models.memory import MemoryEstimate
from protocol.models.nodes import HEAD
from protocol.models.recipes import ModelSpec, with_backend
from protocol.times import NEVER_UNLOADED
from protocol.worker_states import WorkerState
from supervisor.scheduler import idle_ttl
from supervisor.scheduler.inputs import ModelTarget
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.queue.work_items import ShownRequest, SlotGrant
from supervisor.scheduler.replicas.replica_set import ReplicaSet
from supervisor.scheduler.scheduled_model import NEVER, ScheduledModel
from supervisor.scheduler.scheduled_worker import ScheduledWorker


class ReplicaView(NamedTuple):
    """One of several engines of a model, at the moment of the question."""

    number: int
    """From 1."""
    state: ModelState
    worker: str = ""
    """Empty if it has none."""
    node: str = ""
    """Where its worker runs; empty if it has none."""
    facts: EngineReady | None = None
    serves: bool = False
    """Whether its engine answers."""
    spec: ModelSpec | None = None
    running: int = 0
    slots: int = 0
    busy: int = 0


class ModelView(NamedTuple):
    """A model that is used or requested, at the moment of the question. Times in seconds of the loop's clock."""

    name: str
    type: str
    state: ModelState
    spec: ModelSpec | None = None
    """What it is or will be loaded with; None while its files are not on this machine."""
    backend: str = ""
    """What runs it, if it is on another node, where that is not the backend of the spec."""
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

    replicas: Sequence[ReplicaView] = ()
    """Its engines, present and to come; empty unless it may have several."""

    @property
    def workers(self) -> list[str]:
        """The workers of all of its engines."""
        return [each.worker for each in self.replicas if each.worker] or ([self.worker] if self.worker else [])

    @property
    def specs(self) -> list[ModelSpec]:
        """What its engines are or will be loaded with."""
        of_replicas = [each.spec for each in self.replicas if each.spec is not None]
        return of_replicas or ([self.spec] if self.spec is not None else [])

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
    """What its model is or will be loaded with on its node, or the model that it checks for a dry run."""
    is_stopping: bool
    """Whether it was told to leave."""
    node: str = HEAD
    """The node that it runs on."""


class EngineView(NamedTuple):
    """An engine that answers, and the memory that was estimated for it."""

    worker: str
    node: str
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
    worker: str = ""
    """Where it runs."""


class WaitingShare(NamedTuple):
    """The requests of one API key that wait for a model."""

    api_key: str
    requests: int
    wait_s: float
    """Until its next one is granted; 0: it is not among the next ones that were looked at."""


def attempt_view(model: ScheduledModel, grant: SlotGrant) -> AttemptView:
    """Return what others may know of a granted attempt."""
    return AttemptView(model.name, grant.caller, grant.earlier)


def model_view(model: ReplicaSet) -> ModelView:
    """Return what others may know of a model: of several engines, the state of the one that leads, and the sums."""
    lead, replicas = model.lead, model.replicas
    worker = lead.worker
    shown = len(replicas) > 1 or model.policy.max_replicas > 1
    return ModelView(
        model.name,
        model.type,
        lead.state,
        spec=lead.spec,
        backend=worker.backend if worker is not None else "",
        worker=worker.id if worker is not None else "",
        facts=worker.facts if worker is not None else None,
        serves=worker is not None and worker.serves,
        counts_as_loaded=any(each.loaded for each in replicas),
        keep_loaded=lead.keep_loaded,
        unloadable=any(each.unloadable for each in replicas),
        awaits_reload=any(each.pending_spec is not None for each in replicas),
        refused_spec=lead.refused_reload.spec if lead.refused_reload is not None else None,
        running=sum(len(each.grants) for each in replicas),
        queued=len(model.queue),
        slots=sum(each.slots for each in replicas),
        busy=sum(each.busy for each in replicas),
        memory=sum(each.memory for each in replicas if each is lead or each.loaded),
        need=_need(replicas),
        ready_at=worker.ready_at if worker is not None and worker.serves else None,
        last_use=None if model.last_use == NEVER else model.last_use,
        pinned=lead.pinned,
        ttl=idle_ttl.ttl_of(lead),
        expires_at=idle_ttl.expires_at(lead),
        replicas=[_replica_view(each) for each in replicas if each.unloadable] if shown else [],
    )


def _need(replicas: Sequence[ScheduledModel]) -> Mapping[str, int]:
    needs = [each.worker.need for each in replicas if each.worker is not None]
    if len(needs) < 2:
        return needs[0] if needs else {}
    return {place: sum(need.get(place, 0) for need in needs) for place in {place for need in needs for place in need}}


def _replica_view(replica: ScheduledModel) -> ReplicaView:
    worker = replica.worker
    return ReplicaView(
        replica.number,
        replica.state,
        worker=worker.id if worker is not None else "",
        node=worker.node if worker is not None else "",
        facts=worker.facts if worker is not None else None,
        serves=worker is not None and worker.serves,
        spec=replica.spec,
        running=len(replica.grants),
        slots=replica.slots,
        busy=replica.busy,
    )


def worker_view(worker: ScheduledWorker) -> WorkerView:
    """Return what others may know of a worker."""
    model = worker.model
    spec = model.spec if model is not None else worker.plan.spec if worker.plan is not None else None
    return WorkerView(
        worker.id,
        model.name if model is not None else "",
        with_backend(spec, worker.backend) if spec is not None else None,
        worker.state is WorkerState.LEAVING,
        worker.node,
    )
