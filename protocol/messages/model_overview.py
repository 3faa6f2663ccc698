"""What a page or terminal shows of each model. A part of the report in :mod:`protocol.messages.overview`."""

from __future__ import annotations

import msgspec

from protocol.messages.engines import LoadStage
from protocol.messages.health import ReplicaReport
from protocol.times import Seconds, UnixTime


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
