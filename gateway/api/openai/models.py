"""``models`` and ``models/{id}``: the catalogue in OpenAI's form, with the fields of all documents and of Anthropic's API."""

from __future__ import annotations

from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.api.common.model_facts import rfc3339
from gateway.api.common.operations import BODY, MODEL
from gateway.api.common.request_fields import MAX_NAME_LENGTH, check_cache_dir
from gateway.api.common.routes import HttpCaller, route
from protocol.config.api_keys import Scope
from protocol.failures import Code, Failure, LemonbusError, invalid
from protocol.messages.models import GetModel, ListModels, ModelEntry
from protocol.models.recipes import ModelOrigin, OptionValue

MAX_PAGE: Final = 1000
"""How many models one page may have."""


class ModelsQuery(msgspec.Struct, omit_defaults=True):
    """Which models to list, and which part of the list."""

    show_all: bool = False
    """Also the models that are not downloaded, and whether this machine can run each."""
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] | UnsetType = UNSET
    after_id: str = ""
    """The part of the list after this model."""
    before_id: str = ""
    cache_dir: Annotated[str, Meta(max_length=MAX_NAME_LENGTH)] = ""


class ModelId(msgspec.Struct):
    """A model by one of its names."""

    model_id: Annotated[str, Meta(min_length=1)]


class ModelObject(msgspec.Struct, kw_only=True):
    """A model, with the fields of OpenAI, Lemonade and Anthropic; with `show_all` it has more."""

    id: str
    object: Literal["model"]
    type: Literal["model"]
    display_name: str
    created: int
    created_at: str
    lifecycle: Literal["active"]
    owned_by: Literal["lemonade"]
    checkpoint: str
    recipe: str
    device: str
    dtype: str
    labels: list[str]
    recipe_options: dict[str, OptionValue]
    """The load options that are saved for the model."""
    image_defaults: dict[str, OptionValue] | UnsetType = UNSET
    """Of a model for pictures: what requests get that do not say it themselves: `steps`, `cfg_scale`, `width`, `height` and so on."""
    checkpoints: dict[str, str] | UnsetType = UNSET
    """Of a model of several files: `main`, and each part with its own checkpoint."""
    root: str | UnsetType = UNSET
    """The registered name, if `id` is another name that the configuration or a user gave the model."""
    context_length: int | UnsetType = UNSET
    """Context tokens of each request: of the loaded engine, else of the next one."""
    max_context_window: int | UnsetType = UNSET
    """Tokens that the model was trained for, according to its file."""
    name: str | UnsetType = UNSET
    downloaded: bool | UnsetType = UNSET
    """Whether it can be loaded without a download."""
    origin: ModelOrigin | UnsetType = UNSET
    """Files, a program of the operator's own (`command`), or another server (`url`). Only `files` are ever downloaded."""
    size: float | UnsetType = UNSET
    """Gigabytes (10⁹ bytes)."""
    suggested: bool | UnsetType = UNSET
    model_type: str | UnsetType = UNSET
    loaded: bool | UnsetType = UNSET
    aliases: list[str] | UnsetType = UNSET
    supported: bool | UnsetType = UNSET
    unsupported_reason: str | UnsetType = UNSET
    """Why this machine cannot run it, empty if it can."""
    nodes: list[str] | UnsetType = UNSET
    """The machines of the server that have its files; only if the server has several."""


class ModelList(msgspec.Struct, kw_only=True):
    """Models, or one page of them."""

    object: Literal["list"]
    data: list[ModelObject]
    has_more: bool
    first_id: str | None
    last_id: str | None


@route("GET", "models", also=("/models",))  # llama-server answers it with and without a prefix
def list_models(caller: HttpCaller, query: ModelsQuery) -> ModelList:
    """Lists models."""
    check_cache_dir(query.cache_dir, caller.session.settings)
    entries = caller.ask(lambda number: ListModels(number, query.show_all), list[ModelEntry])
    return model_list([entry for entry in entries if caller.context.may_use(entry.id)], query)


@route("POST", "/v0/models", also=("/api/v0/models",), scope=Scope.INFERENCE, body_required=False, failures=BODY)
def list_models_of_preview(caller: HttpCaller, request: ModelsQuery) -> ModelList:
    """Lists models. The fields are in the body, as in the preview's example."""
    return list_models.handler(caller, request)


@route("GET", "models/{model_id:path}", failures=MODEL)
def show_model(caller: HttpCaller, model: ModelId) -> ModelObject:
    """Shows a model. Its id may contain slashes."""
    try:
        entry = caller.ask(lambda number: GetModel(number, model.model_id), ModelEntry)
    except LemonbusError as problem:
        if problem.failure.code != Code.MODEL_NOT_FOUND:
            raise
        raise _not_found(model.model_id) from None
    if not caller.context.may_use(entry.id):
        raise _not_found(model.model_id)
    return model_object(entry, model.model_id if model.model_id in entry.given_names else entry.id, whole=True)


def _not_found(model: str) -> LemonbusError:
    return Failure(Code.MODEL_NOT_FOUND, f"Model {model} has not been found", model=model).raised()


def model_object(entry: ModelEntry, name: str, *, whole: bool = False) -> ModelObject:
    """Return a model as the lists show it, under its registered name or a given one.

    ``whole``: with the additions of ``show_all``.
    """
    shown = ModelObject(
        id=name,
        object="model",
        type="model",
        display_name=name,
        created=entry.created,
        created_at=rfc3339(entry.created),
        lifecycle="active",
        owned_by="lemonade",
        checkpoint=entry.checkpoint,
        recipe=entry.recipe,
        device=entry.device,
        dtype=entry.dtype,
        labels=entry.labels,
        recipe_options=entry.saved_options,
        image_defaults=entry.image_defaults or UNSET,
        checkpoints=entry.checkpoints or UNSET,
        root=entry.id if name != entry.id else UNSET,
        context_length=entry.context_length or UNSET,
        max_context_window=entry.max_context_window or UNSET,
    )
    if whole:
        shown.name, shown.aliases, shown.model_type = entry.id, entry.other_names, entry.type
        shown.downloaded, shown.loaded, shown.size = entry.downloaded, entry.loaded, entry.size
        shown.origin, shown.suggested = entry.origin, entry.suggested
        shown.unsupported_reason = "" if entry.loaded else entry.unsupported_reason
        shown.supported = not shown.unsupported_reason
        shown.nodes = entry.nodes or UNSET
    return shown


def model_list(entries: list[ModelEntry], query: ModelsQuery) -> ModelList:
    """Return a list of models; raises ``invalid_request`` if a page refers to a model that is not in it.

    A model appears under each name that it was given, so that clients can offer these. With ``show_all``, every model
    appears once, for clients that manage models.
    """
    names = [
        _ListedName(name, entry)
        for entry in entries
        for name in (entry.id, *(() if query.show_all else entry.given_names))
    ]
    shown, has_more = _cut(names, query)
    return ModelList(
        object="list",
        data=[model_object(each.entry, each.name, whole=query.show_all) for each in shown],
        has_more=has_more,
        first_id=shown[0].name if shown else None,
        last_id=shown[-1].name if shown else None,
    )


class _ListedName(NamedTuple):
    name: str
    entry: ModelEntry


def _cut(entries: list[_ListedName], page: ModelsQuery) -> tuple[list[_ListedName], bool]:
    """Return a page, and whether there are more models in its direction: backward from ``before_id``, else forward."""
    positions = {each.name: position for position, each in enumerate(entries)}
    for name, cursor in (("after_id", page.after_id), ("before_id", page.before_id)):
        if cursor and cursor not in positions:
            raise invalid(f"`{name}` must be the id of a model in the list", name)
    start = positions[page.after_id] + 1 if page.after_id else 0
    end = positions[page.before_id] if page.before_id else len(entries)
    found = entries[start:end]
    if not page.limit or len(found) <= page.limit:
        return found, False
    return (found[-page.limit :] if page.before_id else found[: page.limit]), True
