"""What a page or terminal about the running server shows, once a second: models, requests, memory, and what ended last.

The same types are the answer of ``GET /internal/overview``. Everything that changes by itself is a date, not an age, so
that an idle model is the same in each second. Sizes are in bytes.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.failures import Code
from protocol.messages.calls import Repetition, call_message, no_report, repeated_call
from protocol.messages.health import ReplicaReport
from protocol.messages.metrics import EndedRequest
from protocol.messages.peers import LoadStage
from protocol.times import Seconds, UnixTime

MAX_REQUESTS: Final = 200
"""Requests in flight that are listed; ``running`` and ``waiting`` count all."""
MAX_ENDED: Final = 50
"""Ended requests that are kept."""
SAMPLE_INTERVAL_S: Final = 10
MAX_SAMPLES: Final = 360
"""An hour of samples."""


@repeated_call
class GetOverview(msgspec.Struct, frozen=True):
    """→ :class:`OverviewReport`."""

    number: int


@repeated_call
class GetHistory(msgspec.Struct, frozen=True):
    """→ :class:`HistoryReport`."""

    number: int


class ServerOverview(msgspec.Struct, frozen=True, omit_defaults=True):
    """The server as a whole."""

    version: str
    state: str
    """``ok``, ``draining`` (the server ends) or ``drained`` (an operator took it out of service)."""
    started_at: UnixTime
    max_models: int
    """Models of one type that may be loaded at once."""
    pid: int = 0
    """Of the supervisor; for administrators."""
    default_model: str = ""
    problems: list[str] = []
    """What keeps the server from its work, and how to fix it; for administrators."""


class PlaceMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """The memory of the host or of a device."""

    total: int
    free: int
    """What new work may use now, in whole MiB."""
    name: str = ""
    """A device's product name."""
    used_percent: float | None = None
    """How busy a device was in the last moment."""
    limited_by: str = ""
    """The control group that leaves the least; empty: the machine itself. For administrators."""


class NodeOverview(msgspec.Struct, frozen=True, omit_defaults=True):
    """A machine of a server that has several."""

    state: str
    """``ready``, ``draining`` or ``drained`` (it gets no new models), ``unreachable`` or ``lost``."""
    since: UnixTime = 0.0
    """Since when it has been in this state; of a node that is drained: when an operator said so."""
    address: str = ""
    """Where other nodes reach it; for administrators."""
    cpus: int = 0
    devices: list[str] = []
    """The kinds of its devices."""
    memory: dict[str, PlaceMemory] = {}
    """By place, as it was read last."""
    models: list[str] = []
    """Those that it has or loads."""


class Disk(msgspec.Struct, frozen=True):
    """The disk of a directory of the server."""

    free: int
    size: int


class ModelLoad(msgspec.Struct, frozen=True, omit_defaults=True):
    """A load that has begun and not ended."""

    stage: LoadStage
    asked_at: UnixTime
    waiting: int = 0
    """Requests and loads that wait for it."""
    done: int = 0
    total: int = 0
    """0: the engine does not say how far it is."""
    unit: str = ""
    node: str = ""
    """As in :class:`~protocol.messages.health.LoadInProgress`."""


class WaitingKey(msgspec.Struct, frozen=True, omit_defaults=True):
    """The requests of one API key that wait for a model; ``key`` is empty without keys."""

    key: str
    requests: int
    wait_s: Seconds = 0.0
    """Until its next one is granted, estimated; 0: it is far behind, or unknown."""


class ModelFailure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a model is not loaded."""

    code: str
    message: str
    failures: int
    """How many in a row."""
    retry_at: UnixTime = 0.0
    """Until then it is not tried again; 0: the next request tries."""
    detail: str = ""
    """The last output of its engine; for administrators."""


class ModelDeath(msgspec.Struct, frozen=True):
    """The death of an engine, or of its worker."""

    at: UnixTime
    code: str
    reason: str


class ModelDeaths(msgspec.Struct, frozen=True):
    """The deaths of a model's engines since the start of the server; ``last``: the latest, the newest first."""

    count: int
    last: list[ModelDeath]


class ModelOverview(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model that is loaded, is being loaded, failed, died, is pinned or has requests."""

    state: str
    """A state of its lifecycle (``docs/lifecycles.md``); ``absent``: not loaded."""
    type: str = ""
    recipe: str = ""
    device: str = ""
    labels: list[str] = []
    load: ModelLoad | None = None
    slots: int = 0
    """Slots that requests may hold at once; 0 while there is no engine."""
    running: int = 0
    """Requests that its engine works on."""
    waiting: int = 0
    queue: list[WaitingKey] = []
    """Who waits; for administrators."""
    context: int = 0
    """Context tokens of each request."""
    memory: int = 0
    """What its processes used after its last load."""
    memory_by_place: dict[str, int] = {}
    """What it takes of each place, as the scheduler counts."""
    tokens_per_second: float = 0.0
    """The median over its last requests, at most 64 and not older than an hour; 0: there was none. So are the next two."""
    first_token_p50: Seconds = 0.0
    """From the grant to the first token."""
    queue_wait_p50: Seconds = 0.0
    last_use: UnixTime = 0.0
    """When a request of it began or ended last, or it was loaded; 0: never."""
    expires_at: UnixTime = 0.0
    """When it is unloaded if nothing uses it until then; 0: never, or it is in use."""
    pinned: bool = False
    loaded_at: UnixTime = 0.0
    load_seconds: Seconds = 0.0
    worker_pid: int = 0
    """For administrators, as ``engine_pid`` and ``command``."""
    engine_pid: int = 0
    command: list[str] = []
    failure: ModelFailure | None = None
    deaths: ModelDeaths | None = None
    node: str = ""
    """Where its worker runs; empty on a server with one machine."""
    replicas: list[ReplicaReport] = []
    """Its engines; empty unless it may have several. The other fields have the sums, and the facts of one engine."""


class Download(msgspec.Struct, frozen=True, omit_defaults=True):
    """A download that runs or is paused, or has ended within the last half minute. ``done`` and ``total``: of the present file."""

    state: str
    """``running``, ``paused``, ``done`` or ``failed``."""
    done: int = 0
    total: int = 0
    file: str = ""
    file_index: int = 0
    """From 1."""
    files: int = 0
    message: str = ""
    """Why it failed."""


class RequestOverview(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request that waits or runs."""

    id: str
    """Its ``X-Request-ID``."""
    model: str
    """The registered name."""
    endpoint: str
    state: str
    """``waiting`` or ``running``."""
    arrived_at: UnixTime
    key: str = ""
    """The name of its API key."""
    dialect: str = ""
    stream: bool = False
    granted_at: UnixTime = 0.0
    position: int = 0
    """In the queue of its model, from 1."""
    wait_s: Seconds = 0.0
    """Until its grant, estimated."""
    tokens: int = 0
    """Output tokens so far."""
    first_token_at: UnixTime = 0.0


class OverviewReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole server at one moment."""

    time: UnixTime
    """The server's clock."""
    server: ServerOverview
    running: int
    """Requests that engines work on."""
    waiting: int
    """Requests that wait for a slot."""
    memory: dict[str, PlaceMemory]
    """By place: ``host``, or a device, by its PCI address or UUID."""
    disks: dict[str, Disk]
    """By what is there: ``cache``, ``models`` or ``state``."""
    models: dict[str, ModelOverview]
    """By registered name; those that have something to say."""
    downloads: dict[str, Download]
    """By the model's name."""
    requests: dict[str, RequestOverview]
    """In flight, by the id for :class:`CancelRequest`: running ones first, then those that are next; at most :data:`MAX_REQUESTS`."""
    ended: dict[str, EndedRequest]
    """By number, which rises; at most :data:`MAX_ENDED`."""
    sample: Sample | None
    """The latest one."""
    nodes: dict[str, NodeOverview] | msgspec.UnsetType = msgspec.UNSET
    """By name; missing on a server with one machine."""


class Sample(msgspec.Struct, frozen=True, omit_defaults=True):
    """Ten seconds of the whole server."""

    at: UnixTime
    """Their end."""
    running: int = 0
    waiting: int = 0
    tokens_per_second: float = 0.0
    queue_wait_p50: Seconds | None = None
    """Of the requests that were granted a slot; None: there was none."""
    queue_wait_p95: Seconds | None = None
    first_token_p50: Seconds | None = None
    """From the grant, of the answers that ended; None: there was none."""
    first_token_p95: Seconds | None = None
    memory_used: dict[str, int] = {}
    """By place."""


class HistoryReport(msgspec.Struct, frozen=True):
    """The samples of the last hour, the oldest first."""

    step_s: int
    samples: list[Sample]


@call_message(Repetition(done={Code.NOT_FOUND: no_report}))
class CancelRequest(msgspec.Struct, frozen=True):
    """→ None: a request in flight is cancelled, and its client told so. ``not_found`` if it has ended.

    ``gateway`` and ``request``: the two parts of its id in :class:`OverviewReport`. ``by``: the name of the
    administrator's key, for the log; empty without keys.
    """

    number: int
    gateway: str
    request: int
    by: str = ""
