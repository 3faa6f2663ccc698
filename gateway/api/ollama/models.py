"""``/api/tags``, ``/api/ps``, ``/api/show``, ``/api/copy`` and ``/api/delete``: the downloaded models."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.api.common import model_facts
from gateway.api.common.model_facts import ModelName, rfc3339
from gateway.api.common.operations import CHANGE
from gateway.api.common.routes import HttpCaller, Nothing, route
from protocol.config.api_keys import Scope
from protocol.failures import invalid
from protocol.messages.model_details import CopyModel, ModelDetails
from protocol.messages.model_files import Deleted, DeleteModel
from protocol.models.recipes import ModelType

LATEST: Final = ":latest"
NEVER: Final = "9999-12-31T23:59:59Z"
"""The unload time shown for a model that is never unloaded for being idle: it stays until another model needs its memory."""
_UNITS: Final = ((10**9, "B", 1), (10**6, "M", 2), (10**3, "K", 2))


def tag(name: str) -> str:
    """Return a name as Ollama writes it: with a tag."""
    return name if ":" in name else name + LATEST


def names(details: ModelDetails) -> list[str]:
    """Return the names under which a model is listed: all that requests may use, because clients look for theirs.

    Each name appears once, the one that Ollama's users know first.
    """
    entry = details.entry
    return list(dict.fromkeys(map(tag, (model_facts.short_name(entry), *entry.given_names, entry.id, *entry.aliases))))


def in_words(parameters: int) -> str:
    """Return a number of parameters as Ollama writes it (``1.2B``, ``134.52M``); empty if it is unknown."""
    for size, unit, digits in _UNITS:
        if parameters >= size:
            return f"{parameters / size:.{digits}f}{unit}"
    return str(parameters) if parameters else ""


def details_object(details: ModelDetails) -> dict[str, Any]:
    """Return ``details`` of an answer."""
    family = details.facts.architecture
    return {
        "parent_model": "",
        "format": details.facts.format,
        "family": family,
        "families": [family] if family else [],
        "parameter_size": in_words(model_facts.parameter_count(details)),
        "quantization_level": details.facts.quantization or details.entry.dtype,
    }


def list_items(details: ModelDetails) -> list[dict[str, Any]]:
    """Return a model as ``tags`` lists it, once under each of its names."""
    return [
        {
            "name": name,
            "model": name,
            "modified_at": rfc3339(details.modified),
            "size": details.size,
            "digest": details.facts.digest,
            "details": details_object(details),
        }
        for name in names(details)
    ]


def running_item(details: ModelDetails) -> dict[str, Any]:
    """Return a loaded model as ``ps`` lists it."""
    name = names(details)[0]
    size = details.memory or details.size
    return {
        "name": name,
        "model": name,
        "size": size,
        "digest": details.facts.digest,
        "details": details_object(details),
        "expires_at": rfc3339(int(details.expires_at)) if details.expires_at else NEVER,
        "size_vram": size if "gpu" in details.entry.device else 0,
        "context_length": details.context,
    }


def show_answer(details: ModelDetails, name: str) -> dict[str, Any]:
    """Return the answer of ``show``. ``name``: the client's name for the model."""
    count = model_facts.parameter_count(details)
    metadata = details.facts.metadata
    parameters = f"num_ctx {details.context}" if details.context else ""
    licence = metadata.get("general.license", "")
    return {
        "modelfile": "\n".join(filter(None, [f"FROM {name}", parameters and f"PARAMETER {parameters}"])) + "\n",
        "parameters": parameters,
        "template": details.facts.template,
        "license": str(licence),
        "details": details_object(details),
        "model_info": {**metadata, **({"general.parameter_count": count} if count else {})},
        "capabilities": capabilities(details),
        "modified_at": rfc3339(details.modified),
    }


def capabilities(details: ModelDetails) -> list[str]:
    """Return what a model can do, in Ollama's words."""
    able = {
        "completion": model_facts.generates(details),
        "embedding": details.entry.type == ModelType.EMBEDDING,
        "insert": model_facts.inserts(details),
        "vision": model_facts.takes_images(details),
        "tools": model_facts.takes_tools(details),
        "thinking": model_facts.thinks(details),
    }
    return [word for word, true in able.items() if true]


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
    found = sorted(model_facts.describe(caller), key=lambda details: -details.modified)
    return TaggedModels([item for details in found for item in list_items(details)])


@route("GET", "/api/ps")
def list_loaded_models(caller: HttpCaller, _request: Nothing) -> TaggedModels:
    """Lists the loaded models."""
    found = model_facts.describe(caller)
    return TaggedModels([running_item(details) for details in found if details.entry.loaded])


@route("POST", "/api/show", scope=Scope.INFERENCE, needs=NAME_FIELDS, failures=CHANGE, examples={"one": MODEL})
def show_model(caller: HttpCaller, request: NamedModelRequest) -> ModelDescription:
    """Shows a downloaded model."""
    caller.context.model = name = request.wanted()
    (details,) = model_facts.describe(caller, name)
    return ModelDescription(**show_answer(details, name))


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
