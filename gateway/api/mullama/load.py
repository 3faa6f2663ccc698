"""``POST /api/models/load``, ``GET /api/defaults`` and ``POST /api/defaults/NAME/use``: loading, and the models of the quick start."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import msgspec
from msgspec import Meta, structs

from gateway.api.common import model_facts
from gateway.api.common.model_facts import ModelName
from gateway.api.common.operations import CHANGE, MODEL
from gateway.api.common.routes import HttpCaller, Nothing, route
from protocol.failures import Code, Failure, LemonbusError, invalid
from protocol.messages.model_details import DefaultModel, ListDefaultModels
from protocol.messages.models import Loaded, LoadModel
from protocol.models.recipes import MAX_CTX_SIZE

FilePath = Annotated[str, Meta(min_length=1, max_length=4096)]
_FIELD_BY_OPTION: Final = {"ctx_size": "context_size"}
"""Load option → the request's field, if its name differs."""


class MullamaLoadRequest(msgspec.Struct):
    """``POST /api/models/load``."""

    alias: ModelName
    path: FilePath | None = None
    gpu_layers: Annotated[int, Meta(ge=0, le=999)] | None = None
    context_size: Annotated[int, Meta(ge=1, le=MAX_CTX_SIZE)] | None = None
    mmproj: FilePath | None = None
    set_default: bool | None = None


class NamedDefault(msgspec.Struct):
    """A model of the quick start by its name."""

    name: Annotated[str, Meta(min_length=1)]


class LoadedAlias(msgspec.Struct):
    """The model is ready."""

    status: str
    alias: str
    parameters: int
    context_size: int
    gpu_layers: int
    is_default: bool


class QuickStartModel(msgspec.Struct):
    """A model of the quick start."""

    name: str
    description: str
    size_hint: str
    tags: list[str]
    source: str = msgspec.field(name="from")
    has_thinking: bool = False
    has_vision: bool = False
    has_tools: bool = False


@route(
    "POST",
    "/api/models/load",
    changes=True,
    failures=CHANGE,
    examples={"with options": {"alias": "llama3.2:1b", "context_size": 4096}},
)
def load_model(caller: HttpCaller, request: MullamaLoadRequest) -> LoadedAlias:
    """Loads a model of the catalogue, or a file of this machine.

    A model that is loaded already is a conflict.
    """
    if request.mmproj and not request.path:
        raise invalid("`mmproj` needs `path`: a model of the catalogue has its own", "mmproj")
    given = {"ctx_size": request.context_size, "gpu_layers": request.gpu_layers}
    call = partial(
        LoadModel,
        model=request.alias,
        options={name: value for name, value in given.items() if value is not None},
        path=request.path or "",
        mmproj=request.mmproj or "",
        unless_loaded=True,
        set_default=bool(request.set_default),
    )
    return _load(caller, request.alias, call)


@route("GET", "/api/defaults")
def list_default_models(caller: HttpCaller, _request: Nothing) -> list[QuickStartModel]:
    """Lists the models of the quick start."""
    return [
        QuickStartModel(
            model.name,
            model.description,
            model.size_hint,
            model.tags,
            f"hf:{model_facts.repository(model.checkpoint)}",
            has_thinking="reasoning" in model.labels,
            has_vision="vision" in model.labels,
            has_tools="tool-calling" in model.labels,
        )
        for model in caller.ask(ListDefaultModels, list[DefaultModel])
    ]


@route("POST", "/api/defaults/{name}/use", changes=True, failures=MODEL)
def use_default_model(caller: HttpCaller, default: NamedDefault) -> LoadedAlias:
    """Downloads and loads one of them, and makes it the default model.

    It may have been ready before.
    """
    models = caller.ask(ListDefaultModels, list[DefaultModel])
    wanted = default.name.replace(":", "-")
    if wanted not in [model.name for model in models]:
        known = ", ".join(model.name for model in models)
        reason = f"Default model '{default.name[:80]}' not found; there are: {known}"
        raise Failure(Code.NOT_FOUND, reason, param="name").raised()
    return _load(caller, default.name, partial(LoadModel, model=wanted, set_default=True))


def _load(caller: HttpCaller, alias: str, call: partial[LoadModel]) -> LoadedAlias:
    """Load a model, and return what it is loaded with."""
    caller.context.model = alias
    try:
        loaded = caller.ask(call, Loaded)
    except LemonbusError as problem:
        raise with_own_field(problem.failure).raised() from None
    (details,) = model_facts.describe(caller, loaded.model)
    return LoadedAlias(
        "loaded",
        alias,
        model_facts.parameter_count(details),
        details.context,
        details.gpu_layers,
        details.is_default,
    )


def with_own_field(failure: Failure) -> Failure:
    """Return the failure with the field's name in the request."""
    field = _FIELD_BY_OPTION.get(failure.param)
    if field is None:
        return failure
    return structs.replace(failure, param=field, message=failure.message.replace(failure.param, field))
