"""``load``, ``unload`` and ``pin``: which models are loaded, and which of them stay."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final, Literal, cast

import msgspec
from msgspec import Meta

from gateway.api.common.operations import CHANGE
from gateway.api.common.request_fields import (
    DTYPES,
    MAX_NAME_LENGTH,
    MAX_TTL_S,
    check_cache_dir,
    check_load_words,
    given_options,
)
from gateway.api.common.routes import HttpCaller, route
from protocol.failures import Code, Failure, LemonbusError, invalid
from protocol.messages.models import Loaded, LoadModel, LoadPlan, PinModel, PlannedEviction, UnloadModel
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
_PLANNED: Final = {
    "load": "{model} can be loaded now",
    "evict": "{model} can be loaded when other models have been unloaded",
    "wait": "{model} can be loaded when a load or an unload that is under way has ended",
    "loaded": "{model} is loaded already",
}
"""Decision → what it means, in words."""
_MODEL: Final = {"model_name": "SmolLM2-135M-Instruct-GGUF"}


class LemonadeLoadRequest(NamedModel, kw_only=True):
    """A model, and options of its recipe: `ctx_size`, `llamacpp_backend`, `llamacpp_args` and so on.

    `"ctx_size": -1` or `"auto"` is the largest context that fits into memory. `null`: what is saved for the option does not
    count in this load, and stays saved. "", and -1 for any other option, are what Lemonade's app sends for one that was not
    chosen.
    """

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
    dry_run: bool | None = None
    """Change nothing; the answer's `plan` says what the load would do."""


class PlannedPlace(msgspec.Struct):
    """The memory of the machine or of a device, in bytes."""

    place: str
    """`host`, or the address of a device."""
    name: str
    total: int
    free: int
    reserved: int
    """What models never get."""
    available: int
    """What a model may take now: free, less what is reserved and what loaded models will still take."""
    need: int
    """What the model needs."""


class PlanRefusal(msgspec.Struct):
    """Why the model cannot be loaded."""

    status: int
    code: str
    message: str


class LoadPlanEntry(msgspec.Struct):
    """What a load would do now."""

    decision: Literal["load", "evict", "wait", "refuse", "loaded"]
    """`evict`: others are unloaded first; `wait`: for a load or an unload that is under way; `loaded`: nothing, it is."""
    context: int
    """Context tokens of each request; 0: the engine has none, or not even the smallest fits."""
    slots: int
    places: list[PlannedPlace]
    parts: dict[str, int]
    """What the need consists of, in bytes."""
    measured: bool
    """Whether a former load of the model with these options was measured."""
    evictions: list[PlannedEviction]
    refusal: PlanRefusal | None
    node: str | msgspec.UnsetType = msgspec.UNSET
    """Where it would be loaded, on a server of several machines."""


class LoadAnswer(msgspec.Struct, omit_defaults=True):
    """The model is ready; for a dry run, what a load would do."""

    status: Literal["success"]
    message: str
    model_name: str
    model: str
    """The same, under the preview's name."""
    checkpoint: str
    recipe: str
    context: int = 0
    """Context tokens of each request; missing if the engine has none."""
    plan: LoadPlanEntry | None = None
    """Only for a dry run."""


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
    examples={"with options": {**_MODEL, "ctx_size": 4096}, "dry run": {**_MODEL, "dry_run": True}},
)
def load_model(caller: HttpCaller, request: LemonadeLoadRequest) -> LoadAnswer:
    """Loads a model, after downloading it if necessary."""
    check_cache_dir(request.cache_dir or "", caller.session.settings)
    check_load_words(request.device or "", request.dtype or "")
    caller.context.model = request.name
    given = given_options(caller.fields, request.__struct_fields__)
    call = partial(
        LoadModel,
        model=request.name,
        options={name: value for name, value in given.items() if value != ""},
        save_options=bool(request.save_options),
        pinned=request.pinned,
        ttl=None if request.ttl is None else configured_idle_time(request.ttl),
        recipe=request.recipe or "",
        device=(request.device or "").lower(),
        merge_args=request.merge_args,
        dry_run=bool(request.dry_run),
    )
    if request.dry_run:
        return _planned(caller.ask(call, LoadPlan))
    loaded = caller.ask(call, Loaded)
    caller.context.model = name = loaded.model
    message = f"Loaded model: {request.name}"
    return LoadAnswer("success", message, name, name, loaded.checkpoint, loaded.recipe, loaded.context)


def _planned(plan: LoadPlan) -> LoadAnswer:
    places = [
        PlannedPlace(
            place=each.place,
            name=each.name,
            total=each.total,
            free=each.free,
            reserved=plan.reserved.get(each.place, 0),
            available=plan.available.get(each.place, 0),
            need=plan.need.get(each.place, 0),
        )
        for each in plan.capacities
    ]
    failure = plan.refusal
    refusal = PlanRefusal(failure.http_status, failure.code.value, failure.message) if failure is not None else None
    entry = LoadPlanEntry(
        decision=cast(Any, plan.decision),
        context=plan.context,
        slots=plan.slots,
        places=places,
        parts=plan.parts,
        measured=plan.measured,
        evictions=plan.evictions,
        refusal=refusal,
        node=plan.node or msgspec.UNSET,
    )
    message = refusal.message if refusal is not None else _PLANNED[plan.decision].format(model=plan.model)
    return LoadAnswer("success", message, plan.model, plan.model, plan.checkpoint, plan.recipe, plan.context, entry)


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
    also=("/internal/pin",),  # as Lemonade calls it
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
