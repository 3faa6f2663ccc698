"""``/api/tags``, ``/api/ps``, ``/api/show``, ``/api/copy`` and ``/api/delete``: the downloaded models."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.api.common.models import model_facts
from gateway.api.common.models.model_facts import ModelName
from gateway.api.common.operations import CHANGE
from gateway.api.common.routes import HttpCaller, Nothing, route
from gateway.api.ollama import model_answers
from protocol.config.api_keys import Scope
from protocol.failures import invalid
from protocol.messages.model_details import CopyModel
from protocol.messages.model_files import Deleted, DeleteModel

NAME_FIELDS: Final = ("model", "name")
MODEL: Final = {"model": "llama3.2:1b"}
"""The model of examples."""


class NamedModelRequest(msgspec.Struct):
    """A request about one model. Older clients say ``name``."""

    model: ModelName | None = None
    name: ModelName | None = None

    def wanted(self) -> str:
        """Return the name; raises ``invalid_request`` if there is none, or two."""
        given = {each for each in (self.model, self.name) if each}
        if len(given) != 1:
            raise invalid("`model` is required" if not given else "`model` and `name` name different models", "model")
        return given.pop()


class CopyRequest(msgspec.Struct):
    """``POST /api/copy``."""

    source: ModelName
    destination: ModelName


class TaggedModels(msgspec.Struct):
    """The downloaded models."""

    models: list[dict[str, Any]]


class ModelDescription(msgspec.Struct):
    """All that is known of a model."""

    modelfile: str
    parameters: str
    template: str
    license: str
    details: dict[str, Any]
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str


@route("GET", "/api/tags")
def list_models(caller: HttpCaller, _request: Nothing) -> TaggedModels:
    """Lists the downloaded models.

    The newest are first, and each is listed under all the names that it was given.
    """
    found = sorted(model_facts.describe(caller.session, caller.env), key=lambda details: -details.modified)
    return TaggedModels([item for details in found for item in model_answers.list_items(details)])


@route("GET", "/api/ps")
def list_loaded_models(caller: HttpCaller, _request: Nothing) -> TaggedModels:
    """Lists the loaded models."""
    found = model_facts.describe(caller.session, caller.env)
    return TaggedModels([model_answers.running_item(details) for details in found if details.entry.loaded])


@route("POST", "/api/show", scope=Scope.INFERENCE, needs=NAME_FIELDS, failures=CHANGE, examples={"one": MODEL})
def show_model(caller: HttpCaller, request: NamedModelRequest) -> ModelDescription:
    """Shows a downloaded model."""
    caller.context.model = name = request.wanted()
    (details,) = model_facts.describe(caller.session, caller.env, name)
    return ModelDescription(**model_answers.show_answer(details, name))


@route(
    "POST",
    "/api/copy",
    changes=True,
    failures=CHANGE,
    examples={"one": {"source": "llama3.2:1b", "destination": "assistant"}},
)
def copy_model(caller: HttpCaller, request: CopyRequest) -> None:
    """Gives a model another name.

    Both names share its files and its engine.
    """
    caller.context.model = request.source
    caller.ask(lambda number: CopyModel(number, request.source, request.destination), str)


@route("DELETE", "/api/delete", changes=True, needs=NAME_FIELDS, failures=CHANGE, examples={"one": MODEL})
def delete_model(caller: HttpCaller, request: NamedModelRequest) -> None:
    """Removes such a name, or a model with its files."""
    caller.context.model = name = request.wanted()
    caller.ask(lambda number: DeleteModel(number, name, name_only=True), Deleted)
