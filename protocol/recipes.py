"""What a recipe is, as plain data: registry, command line, system info, validation and docs all read it."""

from __future__ import annotations

import enum

import msgspec


class ModelType(enum.StrEnum):
    """What a model does; places (``max_loaded_models``) are counted per type."""

    LLM = "llm"
    EMBEDDING = "embedding"
    RERANKING = "reranking"
    AUDIO = "audio"
    IMAGE = "image"
    TTS = "tts"


class IdleCheck(enum.StrEnum):
    """How a worker learns that its engine has really stopped working on a cancelled request."""

    SLOTS = "slots"
    """Ask the engine's ``/slots`` until no more are processing than requests are running."""
    ANSWER = "answer"
    """The engine cannot be interrupted: read its answer to the end and throw it away."""


class Option(msgspec.Struct, frozen=True, omit_defaults=True):
    """One load option: its name in requests and ``recipe_options.json``, its type and bounds."""

    name: str
    kind: str
    """``int``, ``number``, ``string`` or ``args`` (a command line, split as a shell splits words)."""
    help: str
    default: int | float | str | None = None
    least: float | None = None
    most: float | None = None
    choices: list[str] = []


class Backend(msgspec.Struct, frozen=True, omit_defaults=True):
    """One way to run a recipe."""

    name: str
    devices: list[str]
    executable: str
    """A program looked up on PATH, or ``module:NAME`` for one of our own engine servers."""
    requires: str = ""
    """The Python distribution the executable needs, if it is ours."""
    slots: int = 1
    """Parallel requests an engine gets unless an option says otherwise."""
    help: str = ""


class Descriptor(msgspec.Struct, frozen=True, omit_defaults=True):
    """A recipe: which backends, which options, what may not be passed through, what it can serve."""

    recipe: str
    title: str
    backends: list[Backend]
    options: list[Option]
    forbidden_flags: list[str]
    """Flags of the engine that ``*_args`` may not contain: we set them."""
    serves: dict[str, list[str]]
    """Model type → endpoints of the middle language (``chat/completions``, …)."""
    idle_check: dict[str, str]
    """Endpoint → :class:`IdleCheck`."""
    silence_by_cpu: bool = True
    """Whether CPU time of the engine's processes counts as progress (device engines: no)."""

    def backend(self, name: str) -> Backend | None:
        """Return the backend of that name; ``default`` and the empty name are the first."""
        if name in ("", "default"):
            return self.backends[0]
        return next((backend for backend in self.backends if backend.name == name), None)

    def option(self, name: str) -> Option | None:
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
    options: dict[str, int | float | str] = {}
    labels: list[str] = []
    size: int = 0
    """Bytes of the model's files, 0 if unknown."""
    pinned: bool = False
