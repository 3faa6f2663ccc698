"""The types of Lemonade's requests and answers, for the OpenAPI document: the routes read and write plain objects."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gateway.api.common.request_fields import DTYPES, MAX_NAME_LENGTH, MAX_TTL_S
from protocol.models.devices import REQUEST_DEVICE_WORDS
from protocol.models.recipes import OptionValue

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
_UNSET = msgspec.UNSET


class NamedModel(msgspec.Struct, kw_only=True):
    """A model by its name; `model` means the same as `model_name`."""

    model_name: Name | None = None
    model: Name | None = None


class UnloadRequest(NamedModel, kw_only=True, forbid_unknown_fields=True):
    """A model, or all: other fields are refused, so that a mistyped one does not unload all."""


class LemonadeLoadRequest(NamedModel, kw_only=True):
    """A model, and options of its recipe: `ctx_size`, `llamacpp_backend`, `llamacpp_args` and so on."""

    save_options: bool | None = None
    merge_args: bool | None = None
    """Whether arguments of the engine that count for all models come before the request's; false: the request's alone."""
    pinned: bool | None = None
    """Never evict it for another model, until it is unloaded."""
    ttl: Annotated[float, Meta(ge=0, le=MAX_TTL_S)] | None = None
    """Unload it after so many idle seconds; 0: never."""
    device: Literal[tuple(REQUEST_DEVICE_WORDS)] | None = None  # type: ignore[valid-type]
    dtype: Literal[DTYPES] | None = None  # type: ignore[valid-type]
    cache_dir: Name | None = None
    recipe: Name | None = None
    checkpoint: Name | None = None


class PinRequest(NamedModel, kw_only=True, forbid_unknown_fields=True):
    """A loaded model, and whether it is never evicted for another one."""

    pinned: bool


class PinAnswer(msgspec.Struct):
    """What counts now, until the model is unloaded."""

    status: Literal["success"]
    model_name: str
    pinned: bool


class LoadAnswer(msgspec.Struct):
    """The model is ready."""

    status: Literal["success"]
    message: str
    model_name: str
    model: str
    """The same, under the preview's name."""
    checkpoint: str
    recipe: str


class UnloadedModels(msgspec.Struct):
    """The processes of these models have ended."""

    status: Literal["success"]
    message: str
    model_name: str
    unloaded: list[str]


class DeletedModel(msgspec.Struct):
    """The files that were removed, and the models that keep others."""

    status: Literal["success"]
    message: str
    model_name: str
    files_removed: int
    kept_for: list[str]


class ParamsAnswer(msgspec.Struct):
    """All sampling defaults, and the names of those that were set."""

    status: Literal["success"]
    message: str
    params: dict[str, float | bool]
    set: list[str]
    ignored: dict[str, list[str]] | msgspec.UnsetType = _UNSET


class ParamsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Values to set; null resets one, and those that are missing stay."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    min_length: Annotated[int, Meta(ge=0)] | None = None
    max_length: Annotated[int, Meta(ge=1)] | None = None
    do_sample: bool | None = None


class DownloadJob(msgspec.Struct):
    """A download; `percent` and the bytes are those of the present file."""

    id: str
    type: Literal["model"]
    model_name: str
    status: Literal["downloading", "completed", "error"]
    running: bool
    complete: bool
    file: str
    file_index: int
    total_files: int
    bytes_downloaded: int
    bytes_total: int
    percent: int
    error: str | msgspec.UnsetType = _UNSET
    code: str | msgspec.UnsetType = _UNSET


class LemonadePullRequest(NamedModel, kw_only=True):
    """A registered model, or a new one: `user.NAME` with its checkpoint and recipe."""

    checkpoint: Name | None = None
    checkpoints: dict[str, Name] | None = None
    recipe: Name | None = None
    mmproj: Name | None = None
    reasoning: bool | None = None
    vision: bool | None = None
    embedding: bool | None = None
    reranking: bool | None = None
    recipe_options: dict[str, OptionValue | None] | None = None
    source: Literal["huggingface"] | None = None
    registry_source: Literal["huggingface"] | None = None
    stream: bool | None = None
    subscribe: bool | None = None
    """Only with `stream`: false answers at once with the download, which `downloads` shows from then on."""


class PulledModel(msgspec.Struct):
    """The model is downloaded."""

    status: Literal["success"]
    message: str
    model_name: str


class BackendRequest(msgspec.Struct):
    """A backend of a recipe."""

    recipe: Name
    backend: Name


class InstallRequest(BackendRequest):
    """A backend to install or update."""

    force: bool | None = None
    stream: bool | None = None


class BackendAnswer(msgspec.Struct):
    """The backend is installed or removed."""

    status: Literal["success"]
    recipe: str
    backend: str
    version: str | msgspec.UnsetType = _UNSET


class LoadedModelEntry(msgspec.Struct):
    """A loaded model. Times in Unix seconds."""

    model_name: str
    checkpoint: str
    last_use: float
    type: str
    device: str
    recipe: str
    recipe_options: dict[str, Any]
    pid: int
    """The process of its engine."""
    is_busy: bool
    """Whether requests run or wait, or it is about to be stopped."""
    pinned: bool
    ttl: float
    """It is unloaded after so many idle seconds; 0: never."""
    expires_at: float | None
    """When it is unloaded if nothing uses it until then."""
    backend_url: str
    launch_command: list[str] | msgspec.UnsetType = _UNSET
    """Its engine's command line, for administrators."""


class ServerHealth(msgspec.Struct):
    """The state of the server; `lemonbus` has what operators need."""

    status: Literal["ok", "recovering"]
    """``recovering``: the supervisor is being replaced; requests wait for it, and streams go on."""
    version: str
    websocket_port: int
    model_loaded: str | None
    checkpoint_loaded: str | None
    all_models_loaded: list[LoadedModelEntry]
    pinned_models: dict[str, int]
    max_models: dict[str, int]
    lemonbus: dict[str, Any]


class RequestStats(msgspec.Struct):
    """Tokens and seconds of the last finished request."""

    time_to_first_token: float
    tokens_per_second: float
    input_tokens: int
    output_tokens: int
    decode_token_times: list[float]
    prompt_tokens: int
    cached_tokens: int
    cache_tokens: int
    """The same, as Lemonade's app calls it."""
    model: str | None
    total_seconds: float


class SystemInfoAnswer(msgspec.Struct):
    """The machine, its devices, and the recipes that run on them."""

    devices: dict[str, Any]
    recipes: dict[str, Any]
    processor: str = msgspec.field(name="Processor")
    system: str = msgspec.field(name="OS Version")
    memory: str = msgspec.field(name="Physical Memory")


class VariantsQuery(msgspec.Struct):
    """The repository: `owner/repo`."""

    checkpoint: str


class StatsQuery(msgspec.Struct):
    """For the last request of one model."""

    model: str | msgspec.UnsetType = _UNSET


class SystemInfoQuery(msgspec.Struct):
    """With Python packages and other facts that help to find a fault."""

    verbose: bool = False


class NamedModelQuery(msgspec.Struct):
    """The model, if the request has no body."""

    model_name: str | msgspec.UnsetType = _UNSET
    model: str | msgspec.UnsetType = _UNSET


class LogQuery(msgspec.Struct):
    """Which entries; `after_seq` and `boot` resume where an earlier reader ended."""

    model: str | msgspec.UnsetType = _UNSET
    level: str | msgspec.UnsetType = _UNSET
    request_id: str | msgspec.UnsetType = _UNSET
    process: str | msgspec.UnsetType = _UNSET
    boot: str | msgspec.UnsetType = _UNSET
    after_seq: Annotated[int, Meta(ge=0)] | msgspec.UnsetType = _UNSET
    api_key: str | msgspec.UnsetType = _UNSET
