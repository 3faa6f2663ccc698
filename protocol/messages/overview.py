"""What a page or terminal about the running server shows, once a second: models, requests, memory, and what ended last.

The same types are the answer of ``GET /internal/overview``. Everything that changes by itself is a date, not an age, so
that an idle model is the same in each second. Sizes are in bytes.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.failures import Code
from protocol.messages.calls import Repetition, call_message, no_report, repeated_call
from protocol.messages.metrics import EndedRequest
from protocol.messages.model_overview import ModelOverview
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
    """Since when it has been in this state; of a node that is drained: when an operator or its agent said so."""
    address: str = ""
    """Where other nodes reach it; for administrators."""
    cpus: int = 0
    devices: list[str] = []
    """The kinds of its devices."""
    memory: dict[str, PlaceMemory] = {}
    """By place, as it was read last."""
    models: list[str] = []
    """Those that it has or loads."""
    reason: str = ""
    """Why it drains although no operator has said so: its agent was told to end."""


class Disk(msgspec.Struct, frozen=True):
    """The disk of a directory of the server."""

    free: int
    size: int


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


class RunningServer(msgspec.Struct, frozen=True, kw_only=True):
    """The whole server at one moment. Dates are in Unix seconds, sizes in bytes."""

    time: UnixTime
    """The server's clock."""
    server: ServerOverview
    running: int
    """Requests that engines work on."""
    waiting: int
    """Requests that wait for a slot."""
    memory: dict[str, PlaceMemory]
    """By place: `host`, or a device, by its PCI address or UUID."""
    disks: dict[str, Disk]
    """By what is there: `cache`, `models` (the hub's cache) or `state`."""
    models: dict[str, ModelOverview]
    """By registered name: those that are loaded, being loaded, failed, died, pinned or have requests."""
    downloads: dict[str, Download]
    """By the model's name."""
    requests: dict[str, RequestOverview]
    """In flight, by the id for `DELETE /internal/requests/{id}`: those that run, then those that are next, at most 200."""
    ended: dict[str, EndedRequest]
    """The last 50 requests to models that have ended, by number, which rises."""
    nodes: dict[str, NodeOverview] | msgspec.UnsetType = msgspec.UNSET
    """The machines of the server by name, if it has several."""


class OverviewReport(RunningServer, frozen=True, kw_only=True):
    """All of it, and the latest sample."""

    sample: Sample | None


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
