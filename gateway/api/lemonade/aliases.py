"""``/internal/aliases``: the other names of models, as Lemonade 11.8 documents them (``docs/api/internal.md``)."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from gateway.api.common.operations import BODY, CONFLICT, NO_MODEL, NOT_FOUND, STORAGE
from gateway.api.common.request_fields import MAX_NAME_LENGTH
from gateway.api.common.routes import HttpCaller, Nothing, route
from protocol.failures import invalid
from protocol.messages.model_details import CopyModel, RemoveAlias
from protocol.messages.models import ListModels, ModelEntry

_PATH: Final = "/internal/aliases"
_Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]


class ModelAlias(msgspec.Struct):
    """Another name of a model."""

    alias: str
    target: str
    """The registered name of the model."""
    downloaded: bool
    recipe: str


class ModelAliases(msgspec.Struct):
    """The names that users and the configuration gave to models."""

    aliases: list[ModelAlias]


class AliasRequest(msgspec.Struct):
    """A name, and the model that it means from now on; `model` means the same as `target`."""

    alias: _Name
    target: _Name | None = None
    model: _Name | None = None


class AliasSet(msgspec.Struct):
    """The name means this model now."""

    status: Literal["ok"]
    alias: str
    target: str


class AliasName(msgspec.Struct):
    """A name that a user gave to a model. It may contain slashes."""

    alias: _Name


class AliasRemoved(msgspec.Struct):
    """The name means no model any more."""

    status: Literal["deleted"]
    alias: str


@route("GET", _PATH, changes=True)
def list_aliases(caller: HttpCaller, _request: Nothing) -> ModelAliases:
    """Lists the other names of models."""
    entries = caller.ask(lambda number: ListModels(number, show_all=True), list[ModelEntry])
    return ModelAliases(
        [ModelAlias(alias, each.id, each.downloaded, each.recipe) for each in entries for alias in each.given_names]
    )


@route(
    "POST",
    _PATH,
    changes=True,
    needs=("target", "model"),
    failures=BODY | NO_MODEL | CONFLICT | STORAGE,
    examples={"one": {"alias": "my-chat-model", "target": "SmolLM2-135M-Instruct-GGUF"}},
)
def set_alias(caller: HttpCaller, request: AliasRequest) -> AliasSet:
    """Gives a model another name, which may have been another model's."""
    target = request.target or request.model or ""
    if not target:
        raise invalid("`target` is required", "target")
    caller.ask(partial(CopyModel, source=target, destination=request.alias), str)
    return AliasSet("ok", request.alias, target)


@route("DELETE", _PATH + "/{alias:path}", changes=True, failures=NOT_FOUND | STORAGE)
def remove_alias(caller: HttpCaller, request: AliasName) -> AliasRemoved:
    """Removes a name that a user gave to a model."""
    caller.ask(partial(RemoveAlias, alias=request.alias), str)
    return AliasRemoved("deleted", request.alias)
