"""Messages between the supervisor and a worker about its model and engine: check, start, progress, ready, failed, died."""

from __future__ import annotations

import enum

import msgspec

from protocol.failures import Failure
from protocol.ids import RequestKey
from protocol.messages.work import AttemptEnded
from protocol.models.memory import EngineDevice, MemoryEstimate
from protocol.models.recipes import ModelSpec
from protocol.models.sampling import SamplingValue
from protocol.requests.request_rules import RequestRules
from protocol.times import Age, Seconds
from protocol.wire.envelope import control_message


@control_message
class CheckModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """Supervisor → spare worker: check everything that can be checked without starting the engine."""

    spec: ModelSpec
    devices: list[EngineDevice] = []
    """What the engine may compute on besides the processor."""
    paths: dict[str, str] = {}
    """To a worker on another node: the paths that files of the spec have there, by those of the head."""
    backend: str = ""
    """For a worker on another node: the backend that runs the model there. Empty: the backend of the spec."""
    device: str = ""
    """The one of the spec's devices that this engine of several is to use; empty: all of them."""


@control_message
class ModelChecked(msgspec.Struct, frozen=True, omit_defaults=True):
    """Worker → supervisor: the model can be tried."""

    estimate: MemoryEstimate = MemoryEstimate()
    """The memory that it needs once it is loaded."""


@control_message
class StartEngine(msgspec.Struct, frozen=True, omit_defaults=True):
    """Supervisor → worker: start the engine; after an engine's death: start it again."""

    spec: ModelSpec
    context: int = 0
    """The context of each request that was chosen because the options leave it open; 0: as the options say."""
    need: dict[str, int] = {}
    """Bytes by place that the model counts with. The worker keeps them for a new supervisor."""
    age: Age = 0.0
    """Since the load began, which was before this message. The worker goes on counting for a new supervisor."""
    paths: dict[str, str] = {}
    """As in :class:`CheckModel`."""
    replica: int = 1
    """The number of this engine, of those of its model. The worker keeps it for a new supervisor."""
    backend: str = ""
    """As in :class:`CheckModel`."""
    device: str = ""
    """As in :class:`CheckModel`."""


@control_message
class EngineReady(msgspec.Struct, frozen=True, omit_defaults=True):
    """Worker → supervisor: the engine answers, with these figures."""

    slots: int
    context: int
    """Context tokens of each request."""
    engine_pid: int
    backend_url: str
    seconds: Seconds
    version: str = ""
    rss: int = 0
    """Resident bytes of the engine after its warm-up."""
    memory: int = 0
    """Bytes of the host's memory that its processes use then; a page that several processes share counts in parts."""
    memory_difference: int | None = None
    """Bytes that it takes beyond the estimate, or less (below zero); None if that is not known."""
    trained_context: int = 0
    """Tokens that the model was trained for; 0 if unknown."""
    parameters: int = 0
    """Parameters of the model, 0 if unknown."""
    gpu_layers: int = 0
    """Layers of the model that are computed on a device."""
    command: list[str] = []
    """The engine's command line, for administrators; it has no keys."""
    restored_tokens: int = 0
    """Prompt tokens that the engine has read from kept prompt caches."""
    leave_seconds: Seconds = 0.0
    """How long the worker may keep its engine after :class:`Shutdown` to save prompt caches."""


class LoadStage(enum.StrEnum):
    """How far a load is."""

    QUEUED = "queued"
    """It has no worker yet."""
    WAITING_FOR_NODE = "waiting for node"
    """For one that was lost, since no other one suits the model. ``done`` and ``total``: for how long, and at most."""
    COPYING = "copying files"
    """To the node where it will be loaded."""
    CHECKING = "checking"
    WAITING_FOR_MEMORY = "waiting for memory"
    WAITING = "waiting"
    """For other models, to end their loads or to leave, because of a limit, a group or the NPU."""
    STARTING = "starting"
    """The engine's process runs, and does not answer yet."""
    LOADING = "loading"
    """The engine answers that it is not ready, or prints how far it is."""
    WARMING_UP = "warming up"


@control_message
class LoadProgressed(msgspec.Struct, frozen=True, omit_defaults=True):
    """Worker → supervisor: how far the engine is that it has started. At each new stage, and twice a second if the engine says more."""

    stage: LoadStage
    done: int = 0
    total: int = 0
    """0: the engine does not say how far it is."""
    unit: str = ""


@control_message
class MemoryMeasured(msgspec.Struct, frozen=True):
    """Worker → supervisor: its ready engine takes more memory than was known."""

    memory_difference: int
    """As in :class:`EngineReady`."""


@control_message
class LoadFailed(msgspec.Struct, frozen=True, omit_defaults=True):
    """Worker → supervisor: ``CheckModel`` or ``StartEngine`` failed. ``started``: an engine had been started."""

    failure: Failure
    started: bool = False
    memory_difference: int | None = None
    """Bytes that the engine took beyond the estimate before it ended; None: it took less, or that is not known."""


@control_message
class EngineDied(msgspec.Struct, frozen=True, omit_defaults=True):
    """Worker → supervisor: the engine of a ready model has ended.

    The worker has reported the failure of its requests to their gateways. It holds no grants any more, and waits for
    :class:`StartEngine` or :class:`Shutdown`.
    """

    failure: Failure
    unfinished: list[AttemptEnded] = []
    """The attempts in progress, with the tokens of their prompts and of the answers already sent."""
    causes: list[RequestKey] = []
    """The attempts that may have caused the death. Empty: none did, for example because a signal came from outside."""
    killed: bool = False
    """Whether it got a SIGKILL that lemonbus did not send: the kernel, or something that watches the memory, wants its memory."""


@control_message
class SamplingDefaults(msgspec.Struct, frozen=True):
    """Supervisor → worker, on each change, and after :class:`Hello` if any are set: the sampling defaults.

    Parameter → value for generations whose request does not set it. Parameters without a default are missing.
    """

    values: dict[str, SamplingValue]


@control_message
class SetRequestRules(msgspec.Struct, frozen=True):
    """Supervisor → worker, before each :class:`StartEngine` and on each change: the changes to make to the model's requests."""

    rules: RequestRules
