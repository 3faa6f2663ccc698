"""Calls about models: they are listed, loaded, pinned and unloaded. The calls are answered as :mod:`protocol.messages.calls` says."""

from __future__ import annotations

import msgspec

from protocol.models.recipes import OptionValue
from protocol.wire.envelope import control_message


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
    """Its names in the catalogue."""
    given_names: list[str] = []
    """Names that the configuration and users gave it; each is listed as a model."""
    unsupported_reason: str = ""
    """Why this machine cannot run it, empty if it can."""
    context_length: int = 0
    """Tokens each request may use: of the loaded engine, else of the next one; 0 if that is not known."""
    max_context_window: int = 0
    """Tokens that the model was trained for, as its files say; 0 if that is not known."""
    saved_options: dict[str, OptionValue] = {}
    """The load options that are saved for it."""

    @property
    def other_names(self) -> list[str]:
        """All names besides its registered one, each once: one that it was given may be in the catalogue, too."""
        return [name for name in dict.fromkeys([*self.given_names, *self.aliases]) if name != self.id]


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
    merge_args: bool | None = None
    """Whether the engine's arguments of the configuration come before those in ``options``; False: none but these.

    None: those in ``options`` replace the others, and without any the others count.
    """
    context: int = 0
    """Beside no options: tokens that its context is to have at least; one that is loaded with fewer is loaded again."""
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
