"""The sections of the configuration file: ``[models."NAME"]``, ``[defaults.RECIPE]``, ``[groups.NAME]`` and ``[remotes.NAME]``.

The values are immutable and comparable, so that a reload can tell which settings have changed. ``None`` or an empty
value means that the section does not set it.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from protocol.models.recipes import ModelType, OptionValue

Text = Annotated[str, Meta(min_length=1, max_length=4096)]
ModelName = Annotated[str, Meta(min_length=1, max_length=256)]
FieldName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}\Z")]
VariableName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}\Z")]
Word = Annotated[str, Meta(min_length=1, max_length=4096)]
Label = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]{0,31}\Z")]
Url = Annotated[str, Meta(pattern=r"^https?://[^/?#@\s]{1,255}(/[!-\"$->A-~]{0,1000})?\Z")]
"""An address without a user, a query and a fragment. Its host and port are checked by ``server_address.parse_address``."""
ReplicaCount = Annotated[int, Meta(ge=1, le=64)]
NodePattern = Annotated[str, Meta(pattern=r"^[A-Za-z0-9*?\[][A-Za-z0-9*?\[\]!._-]{0,63}\Z")]
LabelName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9./_-]{0,127}\Z")]
LabelValue = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{0,63}\Z")]
ResourceName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9:._-]{0,127}\Z")]
ResourceAmount = Annotated[float, Meta(gt=0, le=1_000_000)]
PartName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,31}\Z")]
FilePath = Annotated[str, Meta(pattern=r"^/", max_length=4096)]
DeviceName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9:._-]{0,63}\Z")]


class RecipeDefaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``[defaults.RECIPE]``: settings of all models of a recipe."""

    options: dict[str, OptionValue] = {}
    """Load options, as in a load request: ``ctx_size``, ``slots`` …"""
    args: str | None = None
    """More arguments for the engine, split as a shell splits words: the recipe's option ``…_args`` under one name."""
    env: dict[VariableName, Annotated[str, Meta(max_length=4096)]] = {}
    """Environment variables of the engine."""
    devices: list[DeviceName] | None = None
    """Devices that the engine may use: numbers or UUIDs of GPUs, or llama.cpp's names (``CUDA0``, ``Vulkan1``)."""
    ttl: Annotated[float, Meta(ge=0, le=31_536_000)] | None = None
    """Seconds without a request after which the model is unloaded; 0: never."""
    pin: bool | None = None
    """Whether the model is protected from eviction."""
    concurrency: Annotated[int, Meta(ge=1, le=256)] | None = None
    """How many requests run at once. The engine's slots are the upper limit."""
    queue: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    """Requests of each API key that may wait for the model, instead of ``queue_requests``."""
    memory_limit: Annotated[int, Meta(ge=0)] | None = None
    """Bytes of memory that the engine may use, instead of the setting ``memory_limit``; 0: no limit."""
    cpus: Annotated[float, Meta(ge=0.01, le=4096)] | None = None
    """Processors that the engine may use; half of one is 0.5."""
    nice: Annotated[int, Meta(ge=-20, le=19)] | None = None
    """Added to the nice value of the server: 19 lets everything else compute first."""
    user: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}\Z")] | None = None
    """User that the engine runs as, by name or number, if the server runs as root."""
    set: dict[FieldName, Any] = {}
    """Fields that every request gets, in OpenAI's form, overriding the client's."""
    request_defaults: dict[FieldName, Any] = {}
    """Fields that a request gets if its client did not send them."""
    drop: list[FieldName] = []
    """Fields that are removed from every request."""
    system_prompt: Annotated[str, Meta(max_length=65_536)] | None = None
    """System message of chats that come without one; empty: none."""


class EngineSettings(RecipeDefaults, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The keys that make a section a model of its own, which a program of the operator's own or another server runs.

    Only the configuration file has them: no client can name a program or a server.
    """

    command: Annotated[list[Word], Meta(min_length=1, max_length=1000)] | None = None
    """The program and its arguments. ``{port}``, ``{name}``, ``{model}`` and ``{key}`` are replaced."""
    url: Url | None = None
    """The address of another server's API, up to its ``/v1``."""
    urls: Annotated[list[Url], Meta(min_length=1, max_length=100)] | None = None
    """Likewise, of several servers that have the same model."""
    type: ModelType = ModelType.LLM
    """What the model does."""
    capabilities: list[Label] = []
    """Labels of the model: ``vision``, ``tools``, ``reasoning`` …"""
    served_name: Word | None = None
    """What the server calls the model. Default: the only name that it lists, or else NAME."""
    slots: Annotated[int, Meta(ge=1, le=4096)] | None = None
    """Requests that it works on at once. Default: 1 for a program, 8 for another server."""
    health: Annotated[str, Meta(pattern=r"^/[!-~]{0,500}\Z")] | None = None
    """The path that a server which is ready answers with 200. Default: ``/health``, or else ``/v1/models``."""
    stream_usage: bool = True
    """Whether it is asked for the token counts of streams (``stream_options``)."""
    start_timeout: Annotated[float, Meta(gt=0, le=86_400)] | None = None
    """Seconds within which it must be ready, instead of ``load_timeout``."""
    stop_signal: Literal["TERM", "INT", "QUIT", "HUP", "USR1", "USR2"] = "TERM"
    """The signal that asks the program to end."""
    restart_on_hangup: bool = False
    """Whether the program is started again when it goes on with requests whose clients are gone, and works for no other client."""
    working_directory: Annotated[str, Meta(pattern=r"^/")] | None = None
    """Where the program is started. Default: where lemonbus was."""
    memory: Annotated[int, Meta(ge=0)] = 0
    """Bytes of the host's memory that it needs; 0: unknown."""
    device_memory: Annotated[int, Meta(ge=0)] = 0
    """Bytes that it needs on each of its ``devices``; 0: unknown."""
    api_key_file: Annotated[str, Meta(pattern=r"^/")] | None = None
    """A file with the key that the server demands. It is read at each load."""
    api_key_env: VariableName | None = None
    """The environment variable of lemonbus with that key."""
    timeout: Annotated[float, Meta(gt=0, le=86_400)] | None = None
    """Seconds without a byte of an answer after which a request to another server has failed, instead of ``silence``."""

    @property
    def addresses(self) -> list[str]:
        """The addresses of the other servers; empty: there are none."""
        return self.urls or ([self.url] if self.url else [])


class ModelSettings(EngineSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``[models."NAME"]``: settings of one model. NAME is any name that the model has."""

    aliases: list[ModelName] = []
    """Further names of the model."""
    path: FilePath | None = None
    """A model file of this machine, which makes the section a model. Only the configuration names files anywhere."""
    mmproj: FilePath | None = None
    """The vision projector of the model in ``path``."""
    parts: dict[PartName, FilePath] = {}
    """The other files of the model in ``path``: part, such as ``vae`` → file."""
    preload: bool = False
    """Whether the model is loaded at the start."""
    replicas: ReplicaCount | None = None
    """How many engines of the model run while it is loaded: the same as equal ``min_replicas`` and ``max_replicas``."""
    min_replicas: ReplicaCount | None = None
    """The least number of engines while it is loaded; 1 without the key."""
    max_replicas: ReplicaCount | None = None
    """The greatest number, which is reached while requests wait for long; ``min_replicas`` without the key."""
    nodes: list[NodePattern] = []
    """The nodes that may run the model, by patterns of their names (``gpu-*``); empty: all."""
    node_labels: dict[LabelName, LabelValue] = {}
    """Labels that its node must have."""
    node_resources: dict[ResourceName, ResourceAmount] = {}
    """Custom resources of the cluster that its node must have."""

    @property
    def replica_range(self) -> tuple[int, int]:
        """The least and the greatest number of engines of the model."""
        least = self.replicas or self.min_replicas or 1
        return least, self.replicas or self.max_replicas or least


class RemoteSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``[remotes.NAME]``: another server, all of whose models are listed as ``NAME/MODEL``. Its keys mean what they mean for a model."""

    url: Url
    api_key_file: Annotated[str, Meta(pattern=r"^/")] | None = None
    api_key_env: VariableName | None = None
    slots: Annotated[int, Meta(ge=1, le=4096)] | None = None
    timeout: Annotated[float, Meta(gt=0, le=86_400)] | None = None
    refresh: Annotated[float, Meta(ge=1, le=86_400)] = 300.0
    """Seconds after which its list is read again."""

    def section_of(self, served_name: str, own: ModelSettings) -> ModelSettings:
        """Return the settings of one of its models. ``own``: what a section of that model says."""
        own_key = own.api_key_file or own.api_key_env
        keys = ("slots", "timeout") if own_key else ("slots", "timeout", "api_key_file", "api_key_env")
        given = {name: _first(getattr(own, name), getattr(self, name)) for name in keys}
        return msgspec.structs.replace(own, url=self.url, served_name=served_name, **given)


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``[groups.NAME]``: how some models share the machine. A model is in at most one group."""

    models: Annotated[list[ModelName], Meta(min_length=1)]
    """The models of the group, by any of their names."""
    exclusive: bool = False
    """Whether models outside the group must be unloaded while one of the group is loaded."""
    swap: bool = False
    """Whether at most one model of the group is loaded: the same as ``max_loaded = 1``."""
    max_loaded: Annotated[int, Meta(ge=0, le=10_000)] = 0
    """How many models of the group may be loaded at once; 0: the group sets no limit."""


PROGRAM_KEYS: Final = ("command",)
"""The keys that make a section a model which a program of the operator's own runs."""
SERVER_KEYS: Final = ("url", "urls")
"""The keys that make a section a model on another server."""
FILE_KEYS: Final = ("path", "mmproj", "parts")
"""The keys that make a section a model which is a file of this machine."""
PROCESS_KEYS: Final = ("args", "env", "devices", "memory_limit", "cpus", "nice", "user")
"""The keys that say something about the process of an engine. A model on another server has none here."""
NODE_KEYS: Final = ("nodes", "node_labels", "node_resources")
"""The keys that say which nodes may run a model."""
REPLICA_KEYS: Final = ("replicas", "min_replicas", "max_replicas")
"""The keys that say how many engines a model has."""
OWN_ENGINE_KEYS: Final = tuple(
    name for name in EngineSettings.__struct_fields__ if name not in RecipeDefaults.__struct_fields__
)
"""The keys that :class:`EngineSettings` adds to those of a recipe."""


def merge_model_settings(defaults: RecipeDefaults, model: ModelSettings) -> ModelSettings:
    """Return the settings of a model: its own section, completed from the section of its recipe.

    ``options``, ``env``, ``set`` and ``request_defaults`` are merged name by name, and ``drop`` has the fields of both. Any other setting is
    the model's own or, if it has none, the recipe's.
    """
    return msgspec.structs.replace(
        model,
        options={**defaults.options, **model.options},
        args=_first(model.args, defaults.args),
        env={**defaults.env, **model.env},
        devices=_first(model.devices, defaults.devices),
        ttl=_first(model.ttl, defaults.ttl),
        pin=_first(model.pin, defaults.pin),
        concurrency=_first(model.concurrency, defaults.concurrency),
        queue=_first(model.queue, defaults.queue),
        memory_limit=_first(model.memory_limit, defaults.memory_limit),
        cpus=_first(model.cpus, defaults.cpus),
        nice=_first(model.nice, defaults.nice),
        user=_first(model.user, defaults.user),
        set={**defaults.set, **model.set},
        request_defaults={**defaults.request_defaults, **model.request_defaults},
        drop=list(dict.fromkeys([*defaults.drop, *model.drop])),
        system_prompt=_first(model.system_prompt, defaults.system_prompt),
    )


def _first(own: Any, default: Any) -> Any:
    return default if own is None else own
