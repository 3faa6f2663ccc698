"""Calls about the server's state and its latest figures, answered as :mod:`protocol.messages.calls` says."""

from __future__ import annotations

import msgspec

from protocol.failures import Failure
from protocol.messages.calls import repeated_call
from protocol.messages.events import Outcome
from protocol.messages.peers import Peer
from protocol.messages.work import AttemptProgress
from protocol.models.recipes import ModelSpec
from protocol.times import NEVER_UNLOADED, IdleTime, Seconds, UnixTime


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


class FailedModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model whose last load or check failed, or whose breaker is open. ``failures``: how many in a row."""

    model: str
    failure: Failure
    failures: int
    retry_in: Seconds


class HealthReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of the whole server at one moment."""

    status: str
    """``ok``, ``starting`` or ``draining``."""
    version: str
    boot: str
    pid: int
    uptime: Seconds
    """Seconds since the start of the server, not of this supervisor."""
    models: list[RunningModel]
    max_models: dict[str, int]
    granted: int = 0
    queued: int = 0
    troubled: list[FailedModel] = []
    downloads: list[str] = []
    peers: list[Peer] = []
    problems: list[str] = []
    """What keeps the server from its work, and how to fix it."""
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
    """The machine's memory in bytes."""


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
