"""Calls: what a gateway asks the supervisor besides inference, and the reports that answer.

Each call carries a ``number`` of the gateway's; the answer is :class:`CallResult` with the report as payload, or
:class:`~protocol.messages.work.Refused` with ``attempt`` 0.  The docstring of a call names its report.
"""

from __future__ import annotations

import msgspec

from protocol.failures import Failure
from protocol.messages.events import Outcome
from protocol.messages.work import AttemptProgress
from protocol.models.recipes import ModelSpec, OptionValue
from protocol.wire.envelope import control_message


@control_message
class CallResult(msgspec.Struct, frozen=True):
    """Supervisor → gateway: the call succeeded; the payload is its report."""

    number: int


@control_message
class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Job → supervisor → gateways that wait for it: the progress of a download. Sizes in bytes.

    ``number`` is the waiting call's on its way to a gateway, 0 on its way from a job.
    """

    number: int
    model: str
    file: str
    file_index: int
    total_files: int
    bytes_downloaded: int
    bytes_total: int

    @property
    def percent(self) -> int:
        """Whole percent of this file."""
        return 100 * self.bytes_downloaded // self.bytes_total if self.bytes_total else 0


@control_message
class ListModels(msgspec.Struct, frozen=True):
    """→ ``list[ModelEntry]``: downloaded ones, or with ``show_all`` the whole catalogue."""

    number: int
    show_all: bool = False


@control_message
class GetModel(msgspec.Struct, frozen=True):
    """→ :class:`ModelEntry`."""

    number: int
    name: str


class ModelEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model of the catalogue as the APIs show it."""

    id: str
    created: int
    checkpoint: str
    recipe: str
    type: str
    downloaded: bool
    loaded: bool = False
    device: str = "cpu"
    dtype: str = ""
    labels: list[str] = []
    size: float = 0.0
    """Gigabytes (10⁹ bytes)."""
    suggested: bool = False
    aliases: list[str] = []
    unsupported_reason: str = ""
    """Why this machine cannot run it, empty if it can."""
    context_length: int = 0
    """Tokens each request may use: of the loaded engine, else of the next one; 0 if that is not known."""
    max_context_window: int = 0
    """Tokens that the model was trained for, as its files say; 0 if that is not known."""


@control_message
class LoadModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """Load, or reload with other options → :class:`Loaded`. Answers when the model is ready."""

    number: int
    model: str
    options: dict[str, OptionValue] = {}
    save_options: bool = False
    pinned: bool | None = None
    """Never evict it, or evict it again, until it is unloaded; None: as it is."""
    ttl: float | None = None
    """Unload it after so many idle seconds, until it is unloaded; 0: never; None: as it is."""
    recipe: str = ""
    """Recipe of a checkpoint that is not registered; if empty it is derived from the checkpoint's name and ``device``."""
    device: str = ""
    path: str = ""
    """A file of this machine that is loaded under the name ``model``, which need not be registered."""
    mmproj: str = ""
    """The vision projector beside ``path``."""
    unless_loaded: bool = False
    """Refuse the call with ``conflict`` if the model is loaded already."""
    set_default: bool = False
    """When it is loaded, make it the model of requests that name none."""


@control_message
class PinModel(msgspec.Struct, frozen=True):
    """Never evict a loaded model, or evict it again, until it is unloaded → its registered name."""

    number: int
    model: str
    pinned: bool


class Loaded(msgspec.Struct, frozen=True):
    """The model is ready."""

    model: str
    checkpoint: str
    recipe: str


@control_message
class UnloadModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """Unload one model, or all if ``model`` is empty → ``list[str]`` of the unloaded names."""

    number: int
    model: str = ""


@control_message
class AbandonCall(msgspec.Struct, frozen=True):
    """The client of a call hung up: no answer is expected. What was begun goes on."""

    number: int


@control_message
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
    wait_s: float


class RunningModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """One model that has a worker."""

    spec: ModelSpec
    worker: str
    state: str
    """A state of the model's lifecycle (``supervisor/scheduler/model_states.py``)."""
    worker_pid: int
    last_use: float
    """Unix seconds."""
    slots: int = 0
    """Slots that requests may hold at once."""
    context: int = 0
    granted: int = 0
    queued: int = 0
    engine_pid: int = 0
    backend_url: str = ""
    load_seconds: float = 0.0
    parameters: int = 0
    """0 if unknown."""
    gpu_layers: int = 0
    restored_tokens: int = 0
    """Tokens of prompts that its engine has read from kept prompt caches."""
    queue: list[QueueShare] = []
    """By key, in the order in which their next requests will be granted."""
    progress: list[AttemptProgress] = []
    """Of requests whose engine tells how far it is."""
    command: list[str] = []
    """The engine's command line, for administrators."""
    is_busy: bool = False
    """Whether requests run or wait, reads among them, or the model is about to be stopped."""
    pinned: bool = False
    ttl: float = 0.0
    """Idle seconds after which it is unloaded; 0: never."""
    expires_at: float = 0.0
    """Unix seconds at which it is unloaded if nothing uses it until then; 0: no idle time unloads it, or it is busy."""


class FailedModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model with a failed last load, or with an open breaker."""

    model: str
    failure: Failure
    failures: int
    retry_in: float


class Peer(msgspec.Struct, frozen=True):
    """A process on the bus."""

    role: str
    id: str
    pid: int


class HealthReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of the whole server at one moment."""

    status: str
    """``ok``, ``starting`` or ``draining``."""
    version: str
    boot: str
    pid: int
    uptime: float
    models: list[RunningModel]
    max_models: dict[str, int]
    granted: int = 0
    queued: int = 0
    troubled: list[FailedModel] = []
    downloads: list[str] = []
    peers: list[Peer] = []
    problems: list[str] = []
    """What keeps the server from doing its work, with the cure."""
    counters: dict[str, int] = {}
    default_model: str = ""
    """The model of requests that name none, as a user named it; empty: the one used last."""
    ipc_endpoint: str = ""
    gpu_available: bool = False
    memory_used: int = 0
    """Bytes that the engines of loaded models used after their loads."""
    memory_total: int = 0
    """Bytes of the machine."""


@control_message
class GetStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """→ :class:`StatsReport` of the last finished request, of one model if named."""

    number: int
    model: str = ""


class StatsReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last finished request; ``model`` is empty if there was none yet."""

    model: str = ""
    outcome: Outcome = msgspec.field(default_factory=Outcome)


@control_message
class FollowLogs(msgspec.Struct, frozen=True, omit_defaults=True):
    """→ :class:`LogSnapshot`, then :class:`LogBatch` under the same number until :class:`AbandonCall`.

    ``after_seq`` only counts if ``boot`` is the present one or empty, and no entry is that new: numbers start again
    with each boot.  Otherwise the snapshot is complete.
    """

    number: int
    after_seq: int | None = None
    boot: str = ""
    model: str = ""
    level: str = ""
    request_id: str = ""
    process: str = ""


class LogEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One log line with its number in the stream. ``fields`` is the JSON object of the line."""

    seq: int
    fields: bytes


class LogSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """The retained entries that match, at most 5000; ``dropped``: lines lost before the stream so far."""

    boot: str
    entries: list[LogEntry]
    dropped: int = 0


@control_message
class LogBatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """Supervisor → gateway: new entries for a follower."""

    number: int
    entries: list[LogEntry]
    dropped: int = 0
