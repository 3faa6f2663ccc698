"""What a recipe is, as plain data: registry, command line, system info, validation and documents read it."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from protocol.models.devices import Device, health_words

OptionValue = bool | int | float | str
"""The value of a load option."""
DEFAULT_RECIPE: Final = "llamacpp"
"""The recipe of a checkpoint that says nothing of its own."""


class ModelType(enum.StrEnum):
    """What a model does; ``max_loaded_models`` counts per type."""

    LLM = "llm"
    EMBEDDING = "embedding"
    RERANKING = "reranking"
    AUDIO = "audio"
    IMAGE = "image"
    TTS = "tts"


class IdleCheck(enum.StrEnum):
    """How a worker learns that its engine has really stopped working on a cancelled request."""

    SLOTS = "slots"
    """Ask the engine's ``/slots`` until no more slots are processing than requests are running."""
    CLOSED = "closed"
    """The engine stops when its client hangs up, streamed or not, and answers the next request when it has stopped."""
    ANSWER = "answer"
    """The engine cannot be interrupted: read its answer to the end and discard it."""


class Provision(enum.StrEnum):
    """Where the program of a backend comes from."""

    WHEEL = "wheel"
    """Pinned wheels of the package index, in a folder of their own or in this Python."""
    ARCHIVE = "archive"
    """A pinned archive of a release, unpacked into a folder of its own."""
    USER = "user"
    """The administrator of the machine installs it; it is found on PATH."""


class NpuSharing(enum.StrEnum):
    """How a loaded model shares the NPU, which cannot be divided as memory can."""

    EXCLUSIVE = "exclusive"
    """No other model may use it."""
    PER_TYPE = "per_type"
    """One model of each type may use it, and no ``EXCLUSIVE`` one."""


class FlagFiles(enum.StrEnum):
    """Which files the value of an engine's flag names."""

    NONE = ""
    ONE = "one"
    SEVERAL = "several"
    """With commas between."""
    SCALED = "scaled"
    """With commas between, each followed by a colon and a number."""


class ClientFlag(msgspec.Struct, frozen=True, omit_defaults=True):
    """A flag of an engine that a client may send with a load, under all of its names."""

    names: list[str]
    pattern: str = ""
    """Regular expression that the whole value must match; empty: the flag has no value."""
    files: FlagFiles = FlagFiles.NONE
    most: int = 0
    """The largest number that the value may be, also in the administrator's arguments; 0: none."""


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


class BackendDescriptor(msgspec.Struct, frozen=True, omit_defaults=True):
    """One way to run a recipe."""

    name: str
    devices: list[str]
    """Kinds of :class:`~protocol.models.devices.Device`: one of them must be in the machine."""
    executable: str
    """A program looked up on PATH or in the unpacked archive, or ``module:NAME`` for one of our engine servers."""
    requires: str = ""
    """The Python package the executable needs, if it is ours."""
    extra: str = ""
    """The extra of lemonbus that brings that package (``pip install 'lemonbus[EXTRA]'``)."""
    provision: Provision = Provision.USER
    systems: list[str] = []
    """Values of ``sys.platform`` it runs on; empty: any."""
    shares: str = ""
    """The ``RECIPE:BACKEND`` that has the installation, if this backend has none of its own."""
    home: str = ""
    """A page that says how to get the program, where users install it themselves."""
    beside: list[str] = []
    """Kinds that it also computes on, and that come with those."""
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
        """How it shares the NPU, a value of :class:`NpuSharing`; empty if it does not use it."""
        if Device.AMD_NPU not in self.devices:
            return ""
        return NpuSharing.PER_TYPE if self.npu_per_type else NpuSharing.EXCLUSIVE


class ModelFileKind(msgspec.Struct, frozen=True, omit_defaults=True):
    """The files that a recipe loads, as far as their names tell."""

    what: str = ""
    """In words, for messages."""
    suffixes: list[str] = []
    """One of them ends the file's name; empty: any name, or a folder."""
    other_suffixes: list[str] = []
    """Ends of the names of files that the recipe surely cannot load."""

    def accepts(self, name: str) -> bool:
        """Return whether a file or folder of this name may be a model."""
        lowered = name.lower()
        return lowered.endswith(tuple(self.suffixes or [""])) and not lowered.endswith(tuple(self.other_suffixes))


class RecipeDescriptor(msgspec.Struct, frozen=True, omit_defaults=True):
    """A recipe: its backends, its options, which flags may be passed to the engine, what it can serve."""

    recipe: str
    title: str
    backends: list[BackendDescriptor]
    options: list[LoadOption]
    forbidden_flags: list[str]
    """Flags of the engine that ``*_args`` may never contain: lemonbus sets them."""
    serves: dict[str, list[str]]
    """Model type → endpoints of the internal request format (``chat/completions``, …)."""
    idle_check: dict[str, str]
    """Endpoint → :class:`IdleCheck`."""
    client_flags: list[ClientFlag] = []
    """Flags of the engine that a client's ``*_args`` may contain; the administrator's may contain others too."""
    model_type: ModelType = ModelType.LLM
    """Type of its models whose labels say nothing."""
    label: str = ""
    """A label that all of its models have."""
    model_files: ModelFileKind = ModelFileKind()
    projector: bool = False
    """Whether a model may have a vision projector (``mmproj``) beside its file."""
    optional_checkpoints: list[str] = []
    """Files of Lemonade's ``checkpoints`` that its models also work without."""
    checkpoint_scheme: str = ""
    """Its checkpoints are ``SCHEME:TAG``: a program of its own fetches and keeps its models. Empty: files that we fetch."""
    name_hint: str = ""
    """An unregistered checkpoint with this word in its name is for this recipe."""
    hint_devices: list[str] = []
    """Of several recipes with one hint, the one for the device that the request names; ``hybrid`` for none."""
    folder_file: str = ""
    """A folder of the extra models directory with this file is a model of this recipe."""
    restartable: bool = False
    """Whether its engine keeps nothing between requests, so that it is restarted if it does not stop when a client hangs up."""
    silence_by_cpu: bool = True
    """Whether CPU time of the engine's processes counts as progress (device engines: no)."""
    device_flag: str = ""
    """Its engine's flag that takes names of devices, with commas between; empty: it has none."""
    forced_json: bool = False
    """Whether its engine can force an answer to be JSON (``response_format``)."""
    sampling: dict[str, str] = {}
    """Sampling default of the documents → the engine's name for it; the engine does not use those that are missing."""

    def backend(self, name: str) -> BackendDescriptor | None:
        """Return the backend of that name; ``default`` and the empty name are the first."""
        if name in ("", "default"):
            return self.backends[0]
        return next((backend for backend in self.backends if backend.name == name), None)

    def option(self, name: str) -> LoadOption | None:
        """Return the option of that name."""
        return next((option for option in self.options if option.name == name), None)


class ModelSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything a worker needs to know to load a model. Paths are of this machine and never leave it."""

    name: str
    checkpoint: str
    recipe: str
    backend: str
    type: str
    path: str
    mmproj: str = ""
    options: dict[str, OptionValue] = {}
    labels: list[str] = []
    size: int = 0
    """Bytes of the model's files, 0 if unknown."""
    device: str = "cpu"
    """What it computes on, as health names it."""
    npu: str = ""
    """How it shares the NPU, a value of :class:`NpuSharing`; empty if it does not use it."""
    restartable: bool = False
    """See :attr:`RecipeDescriptor.restartable`."""
    env: dict[str, str] = {}
    """Environment variables of the engine that the configuration sets."""
    devices: list[str] = []
    """Devices that the engine may use: numbers or UUIDs of GPUs, or the engine's own names; empty: all."""
    asked: dict[str, OptionValue] = {}
    """The options that a call asked for, which hold also when the configuration changes."""
    configured: str = ""
    """What the configuration's sections said for the engine, as a fingerprint: when they say something else, it is reloaded."""
