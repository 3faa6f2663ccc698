"""Calls that list, load, pin and unload models, and those about the sampling defaults of all models.

They are answered as :mod:`protocol.messages.calls` says.
"""

from __future__ import annotations

import msgspec

from protocol.failures import Code, Failure
from protocol.messages.calls import Repetition, call_message, repeated_call
from protocol.models.memory import Capacity
from protocol.models.recipes import ModelOrigin, OptionValue
from protocol.models.sampling import SamplingValue
from protocol.times import Age, IdleTime, UnixSecond


@repeated_call
class ListModels(msgspec.Struct, frozen=True):
    """→ ``list[ModelEntry]``: the downloaded models, or with ``show_all`` the whole catalogue."""

    number: int
    show_all: bool = False


@repeated_call
class GetModel(msgspec.Struct, frozen=True):
    """→ :class:`ModelEntry`."""

    number: int
    name: str


class ModelEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model of the catalogue as the APIs show it."""

    id: str
    created: UnixSecond
    checkpoint: str
    recipe: str
    type: str
    downloaded: bool
    """Whether it can be loaded without a download. Of a model without files, there is nothing to download."""
    origin: ModelOrigin = ModelOrigin.FILES
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
    """Names from the configuration and from users; each is listed as a model."""
    unsupported_reason: str = ""
    """Why this machine cannot run it, empty if it can."""
    context_length: int = 0
    """Context tokens of each request: of the loaded engine, else of the next one; 0 if unknown."""
    max_context_window: int = 0
    """Tokens that the model was trained for, according to its files; 0 if unknown."""
    saved_options: dict[str, OptionValue] = {}
    """The load options that are saved for it."""
    image_defaults: dict[str, OptionValue] = {}
    """What its requests for pictures get that do not say it themselves: of the loaded engine, else of the next one."""
    checkpoints: dict[str, str] = {}
    """The checkpoints of a model of several files: ``main`` and its parts; empty for all others."""
    nodes: list[str] = []
    """The nodes that have its files, the head first; empty on a server of one machine, and for a model without files."""

    @property
    def other_names(self) -> list[str]:
        """All names except its registered one, each once: a given name may also be in the catalogue."""
        return [name for name in dict.fromkeys([*self.given_names, *self.aliases]) if name != self.id]


class PolicyOverrides(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What calls have asked for a model, until it is unloaded. None: as the settings say, or as it was."""

    pinned: bool | None = None
    """Whether it is protected from eviction."""
    ttl: IdleTime | None = None


@call_message(
    # Without its condition: this very call may have loaded the model.
    Repetition(change=lambda call: msgspec.structs.replace(call, unless_loaded=False))
)
class LoadModel(PolicyOverrides, frozen=True, omit_defaults=True):
    """Load, or reload with other options → :class:`Loaded`. Answers when the model is ready, a dry run when its files were checked."""

    number: int
    model: str
    options: dict[str, OptionValue | None] = {}
    """None: what is saved for the option does not count, and stays saved. -1: not chosen, or automatic where a number can be."""
    save_options: bool = False
    recipe: str = ""
    """Recipe of an unregistered checkpoint. If empty, it follows from the checkpoint's name and ``device``."""
    device: str = ""
    path: str = ""
    """A file of this machine to load under the name ``model``, which need not be registered."""
    mmproj: str = ""
    """The vision projector for ``path``."""
    unless_loaded: bool = False
    """Refuse the call with ``conflict`` if the model is already loaded."""
    merge_args: bool | None = None
    """Whether the configuration's engine arguments come before those in ``options``.

    False: only those in ``options`` count.

    None: arguments in ``options`` replace the configuration's; without any, the configuration's count.
    """
    context: int = 0
    """Without options: the least context, in tokens. A model that is loaded with a smaller one is loaded again."""
    set_default: bool = False
    """Once loaded, make it the model for requests that name none."""
    dry_run: bool = False
    """Change nothing → :class:`LoadPlan`: what the load would do now."""


@repeated_call
class PinModel(msgspec.Struct, frozen=True):
    """Protect a loaded model from eviction, or no longer, until it is unloaded → its registered name."""

    number: int
    model: str
    pinned: bool


class Loaded(msgspec.Struct, frozen=True, omit_defaults=True):
    """The model is ready."""

    model: str
    checkpoint: str
    recipe: str
    context: int = 0
    """Context tokens of each request; 0: the engine has none."""


class PlannedEviction(msgspec.Struct, frozen=True):
    """A model that a load would unload."""

    model: str
    reason: str
    """A value of :class:`~supervisor.scheduler.eviction.EvictionReason`."""
    busy: bool
    """Whether requests of it run, which would end first."""
    idle_seconds: Age | None
    """Since its last use; None if it was never used."""
    frees: dict[str, int]
    """Bytes by place."""


class LoadPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a load would do now. Sizes in bytes, by place."""

    model: str
    checkpoint: str
    recipe: str
    decision: str
    """``load``, ``evict`` (then load), ``wait`` (for a load or an unload that is under way), ``refuse``; ``loaded``: nothing, it is."""
    need: dict[str, int]
    available: dict[str, int]
    """What a model may take now: free, less what stays reserved and what loaded models will still take."""
    reserved: dict[str, int]
    """What models never get."""
    capacities: list[Capacity]
    parts: dict[str, int] = {}
    """What the need consists of."""
    measured: bool = False
    """Whether a former load of the model with these options was measured."""
    context: int = 0
    """Context tokens of each request; 0: the engine has none, or not even the smallest fits."""
    slots: int = 1
    evictions: list[PlannedEviction] = []
    refusal: Failure | None = None
    node: str = ""
    """Where it would be loaded; empty on a server with one node."""


@call_message(Repetition(done={Code.NOT_LOADED: lambda call: [call.model]}))
class UnloadModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """Unload one model, or all if ``model`` is empty → ``list[str]`` of the names of the unloaded models."""

    number: int
    model: str = ""


@repeated_call
class GetParams(msgspec.Struct, frozen=True):
    """→ :class:`ParamsReport`: the sampling defaults."""

    number: int


@repeated_call
class SetParams(msgspec.Struct, frozen=True):
    """Set sampling defaults of all models. None resets one, and missing ones stay → :class:`ParamsReport`."""

    number: int
    values: dict[str, SamplingValue | None]


class ParamsReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """All six sampling defaults. Those in ``set`` were set; the others are the documented values.

    ``ignored``: recipe → names in ``set`` that its engine does not use.
    """

    params: dict[str, SamplingValue]
    set: list[str]
    ignored: dict[str, list[str]] = {}
