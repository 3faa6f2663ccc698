"""Messages about the peers themselves, between the supervisor and each of them: hello, load, ready, ended."""

from __future__ import annotations

import enum

import msgspec

from protocol import RELEASE, VERSION
from protocol.config.api_keys import ApiKey
from protocol.failures import Failure
from protocol.ids import RequestKey
from protocol.messages.models import PolicyOverrides
from protocol.messages.work import AttemptEnded, RunningAnswer
from protocol.models.memory import EngineDevice, MemoryEstimate
from protocol.models.recipes import ModelSpec, OptionValue
from protocol.models.sampling import SamplingValue
from protocol.requests.request_rules import RequestRules
from protocol.times import Age, Seconds, UnixTime
from protocol.wire.envelope import control_message, stable_message


class Peer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process on the bus."""

    role: str
    id: str
    pid: int
    node: str = ""
    """The name of its node; empty: the head."""


class ModelInUse(PolicyOverrides, frozen=True, omit_defaults=True):
    """The model of a worker, in a form that every version understands: only new fields may be added."""

    name: str
    asked: dict[str, OptionValue] = msgspec.field(default_factory=dict)
    """The options that a call asked for."""


@stable_message
class Hello(msgspec.Struct, frozen=True):
    """Any peer → supervisor, the first message of a DEALER with the routing id ``id``.

    Its payload is a snapshot (:mod:`protocol.messages.recovery`), in the form of the sender's version.
    """

    role: str
    """``gateway``, ``worker`` or ``job``."""
    id: str
    pid: int
    boot: str
    """The boot that the peer was started for. Any other boot is answered with :class:`Shutdown`."""
    version: int = VERSION
    """The version of the protocol that the peer speaks."""
    release: str = RELEASE
    """The release of lemonbus that it runs."""
    model: ModelInUse | None = None
    """The model of a worker that has an engine."""
    endpoint: str = ""
    """Where a worker publishes its events. The worker alone decides that; others use what they are told."""
    node: str = ""
    """The name of the node where the peer runs; empty: the head."""
    remote_endpoint: str = ""
    """Where a worker publishes the same events for gateways on other nodes; empty: nowhere, because there are none."""
    proof: str = ""
    """That a peer on another node is the one with this id: see ``protocol/wire/peer_proof.py``; empty: the peer is on the head."""


class LoadedCode(msgspec.Struct, frozen=True):
    """The code that a supervisor runs, in a form that every version understands: only new fields may be added."""

    release: str
    id: str
    """A new value each time a release is loaded from its files, even the same release."""


@stable_message
class Welcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """Supervisor → any peer, the answer to :class:`Hello`."""

    boot: str
    pid: int
    """The supervisor's pid.

    The peer holds a pidfd on it; when the supervisor has ended, the peer says Hello to its successor.
    """
    code: LoadedCode | None = None
    keys: list[ApiKey] | None = None
    """To a gateway: the API keys of the present settings, as digests. It may have started with other settings."""
    log_level: str = ""
    """The least level that the peer is to log from now on, whatever it was started with."""
    clock: UnixTime = 0.0
    """To a process of another node: what the clock of the head shows now. Clients read no other one, and keys expire by it."""


@stable_message
class Ping(msgspec.Struct, frozen=True):
    """Supervisor → any peer, every second. A peer that is alive but stopped (SIGSTOP) does not answer."""

    number: int


@stable_message
class Pong(msgspec.Struct, frozen=True, omit_defaults=True):
    """Any peer → supervisor, at once: the answer to :class:`Ping`."""

    number: int
    errors: int = 0
    """Exceptions that the peer's own code has raised since its last answer.

    They are programming errors, and health counts them.
    """
    tokens: int = 0
    """Output tokens that a worker has produced since its start, those of ``running`` included."""
    running: list[RunningAnswer] = []
    """The attempts of a worker that have produced any."""


@stable_message
class Shutdown(msgspec.Struct, frozen=True, omit_defaults=True):
    """Supervisor → any peer: finish running work within ``grace`` seconds, then exit."""

    grace: Seconds = 0.0
    reason: str = ""
    draining: bool = False
    """The whole server ends: requests that are cut off fail with ``draining``."""
    refused: bool = False
    """To an agent, with ``draining``: the server cannot use it, and a new one like it would be refused as well."""


@control_message
class Rejoin(msgspec.Struct, frozen=True):
    """Supervisor → gateway, or host of gateways, on another node: it was silent for too long, and everything of it was given up.

    Its connection may be whole. It says :class:`Hello` again, on a new connection and under another id.
    """


@stable_message
class PauseAccepting(msgspec.Struct, frozen=True):
    """Supervisor → gateway of another version: accept no new connections until a :class:`Welcome` or :class:`Shutdown`.

    A gateway of the supervisor's own version is about to accept them.
    """


@control_message
class CheckModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """Supervisor → spare worker: check everything that can be checked without starting the engine."""

    spec: ModelSpec
    devices: list[EngineDevice] = []
    """What the engine may compute on besides the processor."""
    paths: dict[str, str] = {}
    """To a worker on another node: the paths that files of the spec have there, by those of the head."""
    backend: str = ""
    """To a worker on another node: the backend that runs the model there; empty: that of the spec."""
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


@control_message
class WorkerUp(msgspec.Struct, frozen=True):
    """Supervisor → gateways: connect to this worker's events."""

    worker: str
    endpoint: str
    node: str = ""
    """The node where it runs; empty: the head."""


@control_message
class WorkerGone(msgspec.Struct, frozen=True):
    """Supervisor → gateways: this worker has ended. Read its last events, then end its open attempts."""

    worker: str
    failure: Failure


@control_message
class Draining(msgspec.Struct, frozen=True):
    """Supervisor → gateways: accept no new requests. Running ones have ``grace`` seconds."""

    grace: Seconds
