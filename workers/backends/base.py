"""The interface between a recipe's backend class and its worker: command line, readiness check, requests and answers.

A backend never owns a process or a socket. It describes what to start and what to send, and the worker does it.
"""

from __future__ import annotations

import abc
import secrets
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from protocol.config.server_address import ServerAddress
from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError
from protocol.models.memory import HOST, EngineDevice, MemoryEstimate, PlaceNeed
from protocol.models.recipes import IdleCheck, ModelSpec, RecipeDescriptor
from protocol.models.sampling import SamplingValue
from protocol.requests.request_rules import RequestRules
from workers.backends.engine_facts import EngineFacts, EngineProgress, ModelFacts
from workers.backends.engine_request import EngineRequest
from workers.backends.error_texts import ErrorTexts
from workers.backends.slot_files import SlotFiles
from workers.backends.visible_devices import GPU_ORDER, device_variables

MEMORY_FACTOR: Final = 1.2
"""Memory that a model needs, as a multiple of the size of its files."""
NO_PROGRAMS: Final = "/dev/null"
"""PATH of an engine: no program can be below a device."""


class Backend(abc.ABC):
    """One model as one recipe runs it."""

    descriptor: ClassVar[RecipeDescriptor]
    hidden: ClassVar[tuple[str, ...]] = ()
    """Prefixes of environment variables that this engine reads as options, so it does not get them."""
    stack_bytes: ClassVar[int] = 0
    """Stack size of each thread of the engine; 0: the system's default."""
    error_texts: ClassVar[ErrorTexts] = ErrorTexts()
    """What the messages of the engine's errors mean, where their status does not say it."""
    answers_while_busy: ClassVar[bool] = True
    """Whether the engine answers :meth:`busy` at once, rather than when it has finished its work."""
    busy_status: ClassVar[int] = 200
    """HTTP status of the engine's answer to :meth:`busy`; 0: any answer will do."""
    stop_seconds: ClassVar[float] = 2.0
    """How long an engine has to end after :attr:`stop_signal` before it is killed (llama-server needs 0.06 s)."""
    ends_group: ClassVar[bool] = False
    """Whether the engine may leave processes of its own behind, which must end with it."""

    def __init__(self, spec: ModelSpec, settings: Settings) -> None:
        """Keep the model and the server's settings."""
        self.spec = spec
        self.settings = settings
        self.model_facts = ModelFacts(0)
        """What the headers of the model's files contain. The worker sets this when it has read them."""
        self.devices: Sequence[EngineDevice] = ()
        """What the engine may compute on besides the processor. The worker sets this before it asks for :meth:`memory`."""
        self.reported_build = self.build = ""
        """The engine's name for its build in answers, and the build itself; equal if the engine knows it."""
        self.sampling: Mapping[str, SamplingValue] = {}
        """The sampling defaults that were set, for requests that do not set their own."""
        self.rules = RequestRules()
        """How the configuration changes the model's requests."""
        self.clock_shift = 0
        """By how many seconds the clock of the head is ahead of that of this node: answers have the head's time."""
        self._random_key = secrets.token_hex(16)

    def check_arguments(self) -> None:  # noqa: B027 - most programs' flags are not known here
        """If the engine's flags are known here, raise ``invalid_request`` for arguments that it will refuse.

        The flags of our own engine servers are known. Any other program says at its start what is wrong.
        """

    @property
    def memory_limit(self) -> int:
        """Bytes of memory that the engine may use; 0: no limit."""
        return self.settings.memory_limit if self.spec.limits.memory is None else self.spec.limits.memory

    @property
    def shares_port(self) -> bool:
        """Whether the engine binds its port with ``SO_REUSEPORT``: see :class:`~workers.engine.port.ReservedPort`."""
        return False

    @property
    def key(self) -> str:
        """The bearer token that the engine demands; empty for an engine without support for it.

        It is random and differs at each start. So no other user and no web page can use an engine behind the server's
        back, and no engine learns a key of the server.
        """
        return self._random_key

    @property
    def trained_context(self) -> int:
        """Tokens that the model was trained for; 0 if unknown."""
        return self.model_facts.context

    @property
    def most_context(self) -> int:
        """The most tokens that a request may use, however the model is loaded; 0 if unknown."""
        return self.trained_context

    @property
    def silence(self) -> float:
        """Seconds without any progress after which a busy engine counts as hung."""
        return self.settings.silence

    @property
    def servers(self) -> Sequence[ServerAddress]:
        """The servers that run the model elsewhere; empty: a process of this machine runs it."""
        return ()

    @property
    def timeout(self) -> float:
        """Seconds without a byte of an answer after which a request to one of :attr:`servers` has failed."""
        return self.silence

    @property
    def load_timeout(self) -> float:
        """Seconds within which the engine must be ready."""
        return self.settings.load_timeout

    @property
    def stop_signal(self) -> signal.Signals:
        """The signal that asks the engine to end."""
        return signal.SIGTERM

    @property
    def working_directory(self) -> str | None:
        """Where the engine is started; None: where this server was."""
        return None

    def health(self) -> EngineRequest:
        """Return the request whose answer :meth:`is_healthy` judges; the warm-up follows it."""
        return EngineRequest("GET", "/health")

    def is_healthy(self, status: int) -> bool:
        """Return whether an answer to :meth:`health` means that the engine has loaded its model."""
        return status == 200

    def health_problem(self, _status: int, _body: bytes) -> str:
        """Return why an engine that answers so will not become healthy, in the words after its name; empty: it may.

        ``status`` is 0 if no answer came; the body then says why.
        """
        return ""

    def idle_check(self, endpoint: str) -> str:
        """Return how the worker learns that the engine has stopped: an :class:`~protocol.models.recipes.IdleCheck`."""
        return self.descriptor.idle_check.get(endpoint, IdleCheck.ANSWER)

    @abc.abstractmethod
    def parse(self, line: bytes) -> tuple[str, str]:
        """Return level and text of a line that the engine printed. A client's words have level ``trace``."""

    def file_problem(self, _output: str) -> str:
        """From an engine's last lines before it failed to load its model, return what is wrong with the model's files.

        The text is for clients, so it has no path. Empty if the lines name no such reason: another try may succeed.
        """
        return ""

    def load_problem(self, _output: str) -> str:
        """From the same lines, return a reason that is not in the model's files, such as too little memory or an unknown device.

        A load with other options, or at another time, may succeed. The text is for clients. Empty if the lines name no such
        reason.
        """
        return ""

    def progress(self, _line: bytes) -> EngineProgress | None:
        """Return the progress in a line that the engine printed; None for any other line.

        Only for engines that work on one request at a time. A carriage return also ends a line.
        """
        return None

    @property
    @abc.abstractmethod
    def program(self) -> str:
        """The engine's name in messages (``llama-server``)."""

    @property
    @abc.abstractmethod
    def alias(self) -> str:
        """The model's name in the engine's answers."""

    @property
    @abc.abstractmethod
    def slots(self) -> int:
        """Requests that run at once."""

    @property
    def gpu_layers(self) -> int:
        """Layers of the model that a device computes; 0 if there are none, or the engine has no such option."""
        return 0

    @abc.abstractmethod
    def check(self) -> None:
        """Raise a failure for what can be checked before the start: options, flags, the executable."""

    def examine(self) -> ModelFacts:
        """Look at the model's files; raises OSError for an unreadable one, ValueError for a broken one.

        The text of a ValueError is for clients, so it has no path.
        """
        return ModelFacts(Path(self.spec.path).stat().st_size)

    def memory(self) -> MemoryEstimate:
        """Return what the engine will need, from :attr:`model_facts`. Here: a multiple of the size of its files."""
        return MemoryEstimate({HOST: PlaceNeed(int(self.model_facts.size * MEMORY_FACTOR))}, slots=self.slots)

    @abc.abstractmethod
    def command(self, port: int) -> list[str]:
        """Return the command line of an engine on 127.0.0.1:``port``."""

    @abc.abstractmethod
    def environment(self, inherited: dict[str, str]) -> dict[str, str]:
        """Return the engine's environment, made from the worker's. :meth:`command` was called before."""

    def configured_environment(self) -> dict[str, str]:
        """Return the variables that the configuration gives to the engine: which devices it sees, and others.

        Unless they include a ``PATH``, the engine has none: otherwise it might pass what a client sends to a program
        that it finds there. Variables that the engine reads as options are left out: lemonbus checks options, and sets
        some itself.
        """
        given = {name: value for name, value in self.spec.env.items() if not name.upper().startswith(self.hidden)}
        return {"PATH": NO_PROGRAMS, **GPU_ORDER, **device_variables(self.spec.devices), **given}

    @abc.abstractmethod
    def prepare(self) -> None:
        """Make the directories that the engine needs."""

    @abc.abstractmethod
    def warm_up(self) -> EngineRequest | None:
        """Return a cheap request that makes the engine compute once before it counts as ready."""

    @abc.abstractmethod
    def about(self) -> EngineRequest:
        """Return the request whose answer :meth:`facts` reads."""

    @abc.abstractmethod
    def facts(self, answer: bytes) -> EngineFacts:
        """Read the engine's answer to :meth:`about`; raises ValueError if it is malformed."""

    @abc.abstractmethod
    def request(self, endpoint: str, query: str, body: bytes, stream: bool) -> EngineRequest:
        """Translate a request of the internal format; raises a failure for what the engine cannot do.

        ``stream``: the client wants a stream. The engine may be asked for a stream even if the client wants none.
        """

    def refuse_unserved(self, endpoint: str) -> None:
        """Raise ``unsupported_operation`` for an endpoint that models of this type do not serve."""
        if endpoint not in self.descriptor.serves.get(self.spec.type, []):
            raise self.unserved(endpoint)

    def refusal(self, _endpoint: str, _status: int, _body: bytes) -> Failure | None:
        """Return the failure for an error response that means something else here than with other engines; else None."""
        return None

    def unserved(self, endpoint: str) -> LemonbusError:
        """Return the error for an endpoint that the model does not serve."""
        what = f"{self.spec.name} is a model for {self.spec.type}; it does not serve {endpoint}"
        return Failure(Code.UNSUPPORTED, what).raised()

    def metrics(self) -> EngineRequest | None:
        """Return the request for the engine's own metrics in Prometheus's format; None if it has none."""
        return None

    def slot_files(self) -> SlotFiles | None:
        """Return how prompt caches outlive the engine; None if they do not, or need not."""
        return None

    @abc.abstractmethod
    def busy(self) -> EngineRequest:
        """Return the request whose answer :meth:`processing` reads."""

    @abc.abstractmethod
    def processing(self, answer: bytes) -> int:
        """Return how many slots of the engine are busy; raises ValueError if the answer is malformed."""
