"""Recipes as plain data, read by the registry, command line, system info, validation and documents."""

from __future__ import annotations

import enum
from typing import Any, Final

import msgspec

from protocol.models.devices import Device, health_words
from protocol.models.engine_limits import EngineLimits
from protocol.models.nodes import HEAD, NodeFacts, NodeNeeds

OptionValue = bool | int | float | str
"""The value of a load option."""
DEFAULT_RECIPE: Final = "llamacpp"
"""The recipe of a checkpoint that does not hint at one."""
AUTOMATIC: Final = "auto"
"""The word for -1, where that means that lemonbus chooses a number."""
AUTOMATIC_CTX_SIZE: Final = -1
"""The ``ctx_size`` that means: the largest context that fits into the memory, up to the model's own."""
MAX_CTX_SIZE: Final = 2**24
"""The largest ``ctx_size`` that may be asked for, in tokens."""


class ModelType(enum.StrEnum):
    """What a model does; ``max_loaded_models`` counts per type."""

    LLM = "llm"
    EMBEDDING = "embedding"
    RERANKING = "reranking"
    AUDIO = "audio"
    IMAGE = "image"
    TTS = "tts"


class IdleCheck(enum.StrEnum):
    """How a worker finds out that its engine has really stopped working on a cancelled request."""

    SLOTS = "slots"
    """Ask the engine's ``/slots`` until no more slots are busy than requests are running."""
    CLOSED = "closed"
    """The engine stops when its client hangs up, streamed or not, and answers the next request once it has stopped."""
    DISCONNECTED = "disconnected"
    """It runs elsewhere, for others as well: once the connection is closed, its work is its own affair."""
    ANSWER = "answer"
    """The engine cannot be interrupted: read its answer to the end and discard it."""


class ModelOrigin(enum.StrEnum):
    """What a model is made of."""

    FILES = "files"
    """Files of this machine, or files that can be downloaded."""
    PROGRAM = "program"
    """A program of the operator's own (``command``), which has its files wherever it likes."""
    SERVER = "server"
    """Another server (``url``, ``[remotes.NAME]``)."""


class Provision(enum.StrEnum):
    """Where the program of a backend comes from."""

    WHEEL = "wheel"
    """Pinned wheels of the package index, in a folder of their own or in this Python."""
    ARCHIVE = "archive"
    """A pinned archive of a release, unpacked into a folder of its own."""
    USER = "user"
    """The machine's administrator installs it; it is found on PATH."""
    SECTION = "section"
    """A section of the configuration names the program, or the server."""


class NpuSharing(enum.StrEnum):
    """How a loaded model shares the NPU, which cannot be divided like memory."""

    EXCLUSIVE = "exclusive"
    """No other model may use it."""
    PER_TYPE = "per_type"
    """One model of each type may use it, and no ``EXCLUSIVE`` one."""


class LoadOption(msgspec.Struct, frozen=True, omit_defaults=True):
    """One load option: its name in requests and ``recipe_options.json``, its type and bounds."""

    name: str
    kind: str
    """``int``, ``number``, ``bool``, ``string`` or ``args`` (a command line, split as a shell splits words)."""
    help: str
    default: OptionValue | None = None
    least: float | None = None
    most: float | None = None
    choices: list[str] = []
    automatic: bool = False
    """Whether -1 means that lemonbus chooses the number, so that it may also be :data:`AUTOMATIC`."""
    image_default: bool = False
    """Whether it is a default of requests for pictures, so that models show it in ``image_defaults``."""


def context_option(text: str) -> LoadOption:
    """Return the option ``ctx_size`` of a recipe. ``text``: what 0 and -1 mean to it."""
    about = f"tokens that each request may use; {text}"
    return LoadOption("ctx_size", "int", about, 4096, AUTOMATIC_CTX_SIZE, MAX_CTX_SIZE, automatic=True)


class BackendDescriptor(msgspec.Struct, frozen=True, omit_defaults=True):
    """One way to run a recipe."""

    name: str
    devices: list[str]
    """Kinds of :class:`~protocol.models.devices.Device`: one of them must be in the machine."""
    executable: str
    """A program on PATH or in the unpacked archive, or ``module:NAME`` for one of our engine servers."""
    requires: str = ""
    """The Python package that the executable needs, if it is ours."""
    extra: str = ""
    """The extra of lemonbus that brings that package (``pip install 'lemonbus[EXTRA]'``)."""
    provision: Provision = Provision.USER
    systems: list[str] = []
    """Values of ``sys.platform`` that it runs on; empty: any."""
    shares: str = ""
    """The ``RECIPE:BACKEND`` whose installation this backend uses, if it has none of its own."""
    home: str = ""
    """A page that says how to get the program, if users install it themselves."""
    beside: list[str] = []
    """Kinds that it also computes on and that always come with the others."""
    slots: int = 1
    """Parallel requests an engine gets unless an option says otherwise."""
    help: str = ""
    npu_per_type: bool = False
    """Whether models of different types may be on the NPU together."""

    @property
    def device(self) -> str:
        """The devices as health names them: ``cpu``, ``gpu``, ``npu``, or several with spaces between."""
        return health_words([*self.beside, *self.devices])

    @property
    def npu(self) -> str:
        """How it shares the NPU, a value of :class:`NpuSharing`; empty if it does not use the NPU."""
        if Device.AMD_NPU not in self.devices:
            return ""
        return NpuSharing.PER_TYPE if self.npu_per_type else NpuSharing.EXCLUSIVE


class ModelFileKind(msgspec.Struct, frozen=True, omit_defaults=True):
    """The names of the files that a recipe loads."""

    what: str = ""
    """In words, for messages."""
    suffixes: list[str] = []
    """Suffixes of these names; empty: any name, or a folder."""
    other_suffixes: list[str] = []
    """Suffixes of files that the recipe certainly cannot load."""

    def accepts(self, name: str) -> bool:
        """Return whether a file or folder of this name may be a model."""
        lowered = name.lower()
        return lowered.endswith(tuple(self.suffixes or [""])) and not lowered.endswith(tuple(self.other_suffixes))


class RecipeDescriptor(msgspec.Struct, frozen=True, omit_defaults=True):
    """A recipe: its backends, its options, what it can serve."""

    recipe: str
    title: str
    backends: list[BackendDescriptor]
    options: list[LoadOption]
    serves: dict[str, list[str]]
    """Model type → endpoints of the internal request format (``chat/completions``, …)."""
    idle_check: dict[str, str]
    """Endpoint → :class:`IdleCheck`."""
    model_type: ModelType = ModelType.LLM
    """Type of models whose labels do not say it."""
    label: str = ""
    """A label that all of its models have."""
    model_files: ModelFileKind = ModelFileKind()
    projector: bool = False
    """Whether a model may have a vision projector (``mmproj``) besides its file."""
    parts: dict[str, str] = {}
    """Further files that a model may have, each with its own checkpoint: part (``vae``) → the engine's flag that names it."""
    optional_checkpoints: list[str] = []
    """Files in Lemonade's ``checkpoints`` that its models can do without."""
    checkpoint_scheme: str = ""
    """Scheme of its checkpoints ``SCHEME:TAG``, if its own program fetches and keeps its models.

    Empty: we fetch the files.
    """
    name_hint: str = ""
    """An unregistered checkpoint with this word in its name gets this recipe."""
    hint_devices: list[str] = []
    """Of several recipes with the same hint, this is the one for the device that the request names; ``hybrid`` if it names none."""
    section_keys: list[str] = []
    """Each of these keys makes a section of the configuration a model of this recipe.

    Such models have no files here, and no client can name one that is not configured. Empty: any model may have the recipe.
    """
    elsewhere: bool = False
    """Whether its models run on other servers: they need no memory here, and no limit on loaded models counts them."""
    shown_device: str = ""
    """The device of its models as health names it, if it is not one of this machine."""
    folder_file: str = ""
    """A folder of the extra models directory that contains this file is a model of this recipe."""
    restartable: bool = False
    """Whether its engine keeps nothing between requests.

    If it does not stop when a client hangs up, it is restarted.
    """
    silence_by_cpu: bool = True
    """Whether CPU time of the engine's processes counts as progress (device engines: no)."""
    device_flag: str = ""
    """Its engine's flag for names of devices, separated by commas; empty: it has none."""
    model_flag: str = ""
    """Its engine's flag for the model's file; empty: lemonbus does not read command lines of the engine."""
    projector_flag: str = ""
    """Likewise, for the vision projector."""
    adapter_flag: str = ""
    """Likewise, for an adapter."""
    forced_json: bool = False
    """Whether its engine can force an answer to be JSON (``response_format``)."""
    sampling: dict[str, str] = {}
    """Documented sampling default → the engine's name for it. The engine does not use the missing ones."""

    def backend(self, name: str) -> BackendDescriptor | None:
        """Return the backend with that name; ``default`` or an empty name means the first."""
        if name in ("", "default"):
            return self.backends[0]
        return next((backend for backend in self.backends if backend.name == name), None)

    def option(self, name: str) -> LoadOption | None:
        """Return the option with that name."""
        return next((option for option in self.options if option.name == name), None)


class NodeBackend(msgspec.Struct, frozen=True, omit_defaults=True):
    """A backend that may run a model on another node."""

    name: str
    device: str = "cpu"
    """As in :class:`ModelSpec`."""
    npu: str = ""
    """As in :class:`ModelSpec`."""


class ModelSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything a worker needs to load a model. Paths are those of the head, also on other nodes; clients see none of them."""

    name: str
    checkpoint: str
    recipe: str
    backend: str
    type: str
    path: str
    mmproj: str = ""
    parts: dict[str, str] = {}
    """The model's other files: part → path."""
    options: dict[str, OptionValue] = {}
    labels: list[str] = []
    size: int = 0
    """Bytes of the model's files, 0 if unknown."""
    device: str = "cpu"
    """The device that it computes on, as health names it."""
    npu: str = ""
    """How it shares the NPU, a value of :class:`NpuSharing`; empty if it does not use the NPU."""
    restartable: bool = False
    """See :attr:`RecipeDescriptor.restartable`."""
    env: dict[str, str] = {}
    """Environment variables of the engine that the configuration sets."""
    devices: list[str] = []
    """Devices that the engine may use: numbers or UUIDs of GPUs, or the engine's own names; empty: all."""
    elsewhere: bool = False
    """See :attr:`RecipeDescriptor.elsewhere`."""
    engine: dict[str, Any] = {}
    """The keys of its section that say which program or server runs it (``OWN_ENGINE_KEYS`` of ``protocol.config.model_settings``)."""
    limits: EngineLimits = EngineLimits()
    """What the configuration lets the engine use."""
    asked: dict[str, OptionValue] = {}
    """The options that a call asked for. They stay valid when the configuration changes."""
    backends: list[NodeBackend] = []
    """What may run it on other nodes, the best first; empty: only ``backend``, which runs it on the head."""
    needs: NodeNeeds = NodeNeeds()
    """What its node must have."""
    configured: str = ""
    """A fingerprint of the engine settings in the configuration's sections: when it changes, the model is reloaded."""


def backend_on(spec: ModelSpec, facts: NodeFacts) -> str:
    """Return the backend that runs a model on a node: the best of those that are installed there."""
    if facts.name == HEAD:
        return spec.backend
    usable = (each.name for each in spec.backends if f"{spec.recipe}:{each.name}" in facts.backends)
    return next(usable, spec.backend)


def with_backend(spec: ModelSpec, name: str) -> ModelSpec:
    """Return a spec as another node runs it. ``name``: the backend there; empty: that of the spec."""
    found = next((each for each in spec.backends if each.name == name != spec.backend), None)
    if found is None:
        return spec
    return msgspec.structs.replace(spec, backend=found.name, device=found.device, npu=found.npu)
