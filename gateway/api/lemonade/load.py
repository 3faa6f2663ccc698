"""``load``, ``unload`` and ``pin``: which models are loaded, and which of them stay."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from gateway.api.common.operations import CHANGE
from gateway.api.common.request_fields import (
    DTYPES,
    MAX_NAME_LENGTH,
    MAX_TTL_S,
    check_cache_dir,
    check_load_words,
    chosen_options,
)
from gateway.api.common.routes import HttpCaller, route
from protocol.failures import Code, Failure, LemonbusError, invalid
from protocol.messages.models import Loaded, LoadModel, PinModel, UnloadModel
from protocol.models.devices import REQUEST_DEVICE_WORDS
from protocol.times import configured_idle_time

Name = Annotated[str, Meta(max_length=MAX_NAME_LENGTH, extra_json_schema={"minLength": 1})]
"""An empty name counts as absent: clients send it if a person has left a field empty."""


class NamedModel(msgspec.Struct, kw_only=True):
    """A model by its name; `model` means the same as `model_name`."""

    model_name: Name | None = None
    model: Name | None = None

    @property
    def given_name(self) -> str:
        """The name, empty if there is none; raises ``invalid_request`` for two that differ."""
        if self.model_name and self.model and self.model_name != self.model:
            raise invalid("`model_name` and `model` name different models", "model_name")
        return self.model_name or self.model or ""

    @property
    def name(self) -> str:
        """The name; raises ``invalid_request`` if there is none, or for two that differ."""
        if not self.given_name:
            raise invalid("`model_name` is required", "model_name")
        return self.given_name


NAME_FIELDS: Final = ("model_name", "model")
_MODEL: Final = {"model_name": "SmolLM2-135M-Instruct-GGUF"}


class LemonadeLoadRequest(NamedModel, kw_only=True):
    """A model, and options of its recipe: `ctx_size`, `llamacpp_backend`, `llamacpp_args` and so on."""

    save_options: bool | None = None
    merge_args: bool | None = None
    """Whether the engine arguments for all models precede the request's; false: only the request's count."""
    pinned: bool | None = None
    """Protect it from eviction until it is unloaded."""
    ttl: Annotated[float, Meta(ge=0, le=MAX_TTL_S)] | None = None
    """Idle seconds after which it is unloaded; 0: never."""
    device: Annotated[str, Meta(extra_json_schema={"enum": list(REQUEST_DEVICE_WORDS)})] | None = None
    dtype: Annotated[str, Meta(extra_json_schema={"enum": list(DTYPES)})] | None = None
    cache_dir: Name | None = None
    recipe: Name | None = None
    checkpoint: Name | None = None


class LoadAnswer(msgspec.Struct):
    """The model is ready."""

    status: Literal["success"]
    message: str
    model_name: str
    model: str
    """The same, under the preview's name."""
    checkpoint: str
    recipe: str


class UnloadRequest(NamedModel, kw_only=True, forbid_unknown_fields=True):
    """A model, or all. Other fields are refused, so that a mistyped one does not unload all models."""


class UnloadedModels(msgspec.Struct):
    """The processes of these models have ended."""

    status: Literal["success"]
    message: str
    model_name: str
    unloaded: list[str]


class PinRequest(NamedModel, kw_only=True, forbid_unknown_fields=True):
    """A loaded model, and whether it is protected from eviction."""

    pinned: bool


class PinAnswer(msgspec.Struct):
    """What applies now, until the model is unloaded."""

    status: Literal["success"]
    model_name: str
    pinned: bool


@route(
    "POST",
    "load",
    changes=True,
    needs=NAME_FIELDS,
    failures=CHANGE,
    examples={"with options": {**_MODEL, "ctx_size": 4096}},
)
def load_model(caller: HttpCaller, request: LemonadeLoadRequest) -> LoadAnswer:
    """Loads a model, after downloading it if necessary."""
    check_cache_dir(request.cache_dir or "", caller.session.settings)
    check_load_words(request.device or "", request.dtype or "")
    caller.context.model = request.name
    declared = request.__struct_fields__
    call = partial(
        LoadModel,
        model=request.name,
        options=chosen_options({field: value for field, value in caller.fields.items() if field not in declared}),
        save_options=bool(request.save_options),
        pinned=request.pinned,
        ttl=None if request.ttl is None else configured_idle_time(request.ttl),
        recipe=request.recipe or "",
        device=(request.device or "").lower(),
        merge_args=request.merge_args,
    )
    loaded = caller.ask(call, Loaded)
    caller.context.model = name = loaded.model
    return LoadAnswer("success", f"Loaded model: {request.name}", name, name, loaded.checkpoint, loaded.recipe)


@route(
    "POST",
    "unload",
    changes=True,
    body_required=False,
    failures=CHANGE,
    examples={"one": _MODEL, "all": {}},
)
def unload_model(caller: HttpCaller, request: UnloadRequest) -> UnloadedModels:
    """Unloads a model, or all of them if the request names none."""
    for field in NAME_FIELDS:
        if getattr(request, field) == "":
            raise invalid(f"`{field}` is empty", field)
    caller.context.model = name = request.given_name
    try:
        unloaded = caller.ask(lambda number: UnloadModel(number, name), list[str])
    except LemonbusError as problem:
        if problem.failure.code not in (Code.MODEL_NOT_FOUND, Code.NOT_LOADED):
            raise
        # For which the document has one message.
        raise Failure(Code.MODEL_NOT_FOUND, f"Model not found: {name}", model=name).raised() from None
    return UnloadedModels("success", "Model unloaded successfully", name, unloaded)


@route(
    "POST",
    "pin",
    also="/internal/pin",  # as Lemonade calls it
    changes=True,
    needs=NAME_FIELDS,
    failures=CHANGE,
    examples={"one": {**_MODEL, "pinned": True}},
)
def pin_model(caller: HttpCaller, request: PinRequest) -> PinAnswer:
    """Keeps a loaded model from being evicted for another one, or lets it be evicted again."""
    caller.context.model = name = request.name
    caller.context.model = model = caller.ask(lambda number: PinModel(number, name, request.pinned), str)
    return PinAnswer("success", model, request.pinned)
