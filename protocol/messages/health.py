"""Calls about the server's state and its latest figures, answered as :mod:`protocol.messages.calls` says."""

from __future__ import annotations

import msgspec

from protocol.failures import Failure
from protocol.messages.calls import repeated_call
from protocol.messages.engines import LoadStage
from protocol.messages.events import Outcome
from protocol.messages.node_reports import NodeReport
from protocol.messages.peers import Peer
from protocol.messages.work import AttemptProgress
from protocol.models.memory import Capacity
from protocol.models.recipes import ModelSpec
from protocol.times import NEVER_UNLOADED, Age, IdleTime, Seconds, UnixTime


@repeated_call
class GetHealth(msgspec.Struct, frozen=True):
    """→ :class:`HealthReport`."""

    number: int


class QueueShare(msgspec.Struct, frozen=True):
    """The requests of one API key that wait for a model; ``key`` is empty without keys.

    ``position`` and ``wait_s`` (estimated) are those of its next request.
    """

    key: str
    requests: int
    position: int
    wait_s: Seconds


class ReplicaReport(msgspec.Struct, frozen=True):
    """One of several engines of a model."""

    number: int
    """From 1."""
    state: str
    """A state of the model's lifecycle, for this engine alone."""
    slots: int = 0
    """Slots that requests may hold at once; 0 while there is no engine."""
    running: int = 0
    """Requests that it works on, reads included."""
    worker: str = ""
    worker_pid: int = 0
    engine_pid: int = 0
    node: str | msgspec.UnsetType = msgspec.UNSET
    """Where its worker runs, if the server has several machines."""


class RunningModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """One model that has a worker."""

    spec: ModelSpec
    worker: str
    state: str
    """A state of the model's lifecycle (``supervisor/scheduler/model_states.py``)."""
    worker_pid: int
    last_use: UnixTime
    slots: int = 0
    """Slots that requests may hold at once."""
    context: int = 0
    granted: int = 0
    queued: int = 0
    engine_pid: int = 0
    backend_url: str = ""
    load_seconds: Seconds = 0.0
    parameters: int = 0
    """0 if unknown."""
    gpu_layers: int = 0
    restored_tokens: int = 0
    """Prompt tokens that its engine read from kept prompt caches."""
    queue: list[QueueShare] = []
    """By key, in the order in which their next requests will be granted."""
    progress: list[AttemptProgress] = []
    """Progress of the requests whose engine reports it."""
    command: list[str] = []
    """The engine's command line, for administrators."""
    is_busy: bool = False
    """Whether requests (reads included) run or wait, or the model is about to be stopped."""
    pinned: bool = False
    ttl: IdleTime = NEVER_UNLOADED
    expires_at: UnixTime = 0.0
    """When it is unloaded if nothing uses it until then; 0: never, or it is busy."""
    node: str = ""
    """Where its worker runs; empty on a server with one machine."""
    replicas: list[ReplicaReport] = []
    """Its engines; empty unless it may have several. The other fields have the sums, and the facts of one engine."""


class LoadInProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """A load that has begun and not ended."""

    model: str
    stage: LoadStage
    age: Age
    """Since it was asked for; after the supervisor was replaced, since then."""
    waiting: int = 0
    """Requests and loads that wait for it."""
    done: int = 0
    total: int = 0
    """0: the engine does not say how far it is."""
    unit: str = ""
    replica: int = 0
    """The number of the engine, if it is not the first one of its model."""
    node: str = ""
    """Where it is loaded, where its files are copied to, or the lost one that it waits for; empty before that is chosen, and on a server with one machine."""


class FailedModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model whose last load or check failed, whose breaker is open, or whose idle engine was killed for memory.

    ``failures``: how many in a row.
    """

    model: str
    failure: Failure
    failures: int
    retry_in: Seconds


class EngineDeath(msgspec.Struct, frozen=True):
    """How long ago and why an engine died, or its worker."""

    age: Age
    code: str
    reason: str


class EngineDeaths(msgspec.Struct, frozen=True):
    """The deaths of a model's engines since the start of the server; ``last``: the latest of them, the newest first."""

    model: str
    count: int
    last: list[EngineDeath]


class ModelProblem(msgspec.Struct, frozen=True):
    """A model that the configuration names, and why it cannot be used, in words."""

    model: str
    text: str


class DiskSpace(msgspec.Struct, frozen=True):
    """The disk of a directory of the server. Sizes in bytes."""

    directory: str
    """What is there: ``cache``, ``models`` (the hub's cache) or ``state``."""
    free: int
    """What this user may still write."""
    size: int


class HealthReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of the whole server at one moment."""

    status: str
    """``ok``, ``draining``: the server ends, or ``drained``: an operator has taken it out of service."""
    version: str
    boot: str
    pid: int
    uptime: Seconds
    """Seconds since the start of the server, not of this supervisor."""
    models: list[RunningModel]
    max_models: dict[str, int]
    granted: int = 0
    queued: int = 0
    loads: list[LoadInProgress] = []
    troubled: list[FailedModel] = []
    deaths: list[EngineDeaths] = []
    """By model, the one whose engine died last first."""
    downloads: list[str] = []
    peers: list[Peer] = []
    drained: bool = False
    """Whether an operator has drained it: no new requests until it is undrained."""
    problems: list[str] = []
    """What keeps the server from its work, and how to fix it."""
    model_problems: list[ModelProblem] = []
    """The same for models that the configuration names."""
    former_models: list[str] = []
    """Models whose workers speak another version of the protocol, and finish their requests; ``models`` has none of them."""
    counters: dict[str, int] = {}
    default_model: str = ""
    """The registered name of the model for requests that name none; empty: the model used last."""
    default_alias: str = ""
    """The model's name in the form ``NAME:TAG`` if it has one, else the registered name."""
    ipc_endpoint: str = ""
    gpu_available: bool = False
    memory_used: int = 0
    """Bytes that the engines of loaded models used right after their loads."""
    memory_total: int = 0
    """The machine's memory in bytes, or what a control group allows of it."""
    memory: list[Capacity] = []
    """The memory of the host, and of each device that has its own."""
    disks: list[DiskSpace] = []
    nodes: list[NodeReport] = []
    """The machines of the server; empty if there is only one."""


@repeated_call
class GetStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """→ :class:`StatsReport` of the last finished request, of one model if one is named.

    ``models``: patterns of the models that the caller's key may use, if not all. A model that matches none is refused.
    """

    number: int
    model: str = ""
    models: list[str] = []


class StatsReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last finished request. ``model`` is empty if there was none yet."""

    model: str = ""
    outcome: Outcome = msgspec.field(default_factory=Outcome)
