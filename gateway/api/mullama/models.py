"""``/api/models`` and ``/api/models/NAME``: the downloaded models; ``DELETE`` removes one, ``POST …/unload`` unloads it."""

from __future__ import annotations

from typing import Any, Final

import falcon
import msgspec

from gateway.api.common import model_facts
from gateway.api.common.operations import MODEL
from gateway.api.common.routes import HttpCaller, Nothing, route
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.model_details import ModelDetails
from protocol.messages.model_files import Deleted, DeleteModel
from protocol.messages.models import UnloadModel

UNLOAD: Final = "/unload"
_CLASSES: Final = {
    "llama": "Llama",
    "qwen2": "Qwen2",
    "qwen2moe": "Qwen2Moe",
    "qwen3": "Qwen3",
    "qwen3moe": "Qwen3Moe",
    "gemma": "Gemma",
    "gemma2": "Gemma2",
    "gemma3": "Gemma3",
    "phi3": "Phi3",
    "mistral": "Mistral",
    "deepseek2": "DeepseekV2",
    "smollm3": "SmolLM3",
    "gpt-oss": "GptOss",
}
"""A file's word for an architecture → the first part of its class name in the documents."""


class ListedModel(msgspec.Struct):
    """A downloaded model; only administrators see `path`."""

    alias: str
    path: str
    parameters: int
    context_size: int
    gpu_layers: int
    is_default: bool
    active_requests: int
    name: str
    loaded: bool
    size_bytes: int


class ListedModels(msgspec.Struct):
    """The downloaded models."""

    models: list[ListedModel]


class ShownModel(ListedModel):
    """A model, and what it can do."""

    architecture: str
    vocab_size: int
    capabilities: dict[str, bool]


class UnloadedAlias(msgspec.Struct):
    """The model is unloaded."""

    status: str
    alias: str


class DeletedAlias(UnloadedAlias):
    """The model is deleted."""

    files_removed: int
    kept_for: list[str]


class ModelPath(msgspec.Struct):
    """A model by its name, which may have slashes."""

    path: str


_PATH: Final = "/api/models/{path:path}"
_SHOWN: Final = "api/models/{name}"


@route("GET", "/api/models")
def list_models(caller: HttpCaller, _request: Nothing) -> ListedModels:
    """Lists the downloaded models.

    Those that are loaded come first.
    """
    found = sorted(model_facts.describe(caller), key=lambda details: not details.entry.loaded)
    return ListedModels(
        [ListedModel(**_facts(caller, details, model_facts.short_name(details.entry))) for details in found]
    )


@route("GET", _PATH, shown_path=_SHOWN, failures=MODEL)
def show_model(caller: HttpCaller, model: ModelPath) -> ShownModel:
    """Shows a downloaded model. Its name may contain slashes."""
    if model.path.endswith(UNLOAD):
        raise falcon.HTTPMethodNotAllowed(["POST", "OPTIONS"])
    caller.context.model = model.path
    (details,) = model_facts.describe(caller, model.path)
    return ShownModel(
        **_facts(caller, details, model.path),
        architecture=architecture(details),
        vocab_size=details.facts.vocabulary,
        capabilities={
            "vision": model_facts.takes_images(details),
            "tools": model_facts.takes_tools(details),
            "thinking": model_facts.thinks(details),
            "json": model_facts.forces_json(details),
        },
    )


@route("DELETE", _PATH, shown_path=_SHOWN, changes=True, failures=MODEL)
def delete_model(caller: HttpCaller, model: ModelPath) -> DeletedAlias:
    """Deletes a model and the files that no other model uses."""
    caller.context.model = name = model.path
    deleted = caller.ask(lambda number: DeleteModel(number, name), Deleted)
    return DeletedAlias("deleted", name, deleted.files, deleted.kept_for)


@route("POST", _PATH, shown_path=_SHOWN + UNLOAD, changes=True, failures=MODEL)
def unload_model(caller: HttpCaller, model: ModelPath) -> UnloadedAlias:
    """Unloads a model.

    A model that is not loaded is a conflict.
    """
    name = model.path.removesuffix(UNLOAD)
    if name in (model.path, ""):
        raise falcon.HTTPMethodNotAllowed(["GET", "HEAD", "DELETE", "OPTIONS"])
    caller.context.model = name
    try:
        caller.ask(lambda number: UnloadModel(number, name), list[str])
    except LemonbusError as problem:
        raise _unload_failure(problem.failure, name).raised() from None
    return UnloadedAlias("unloaded", name)


def _facts(caller: HttpCaller, details: ModelDetails, alias: str) -> dict[str, Any]:
    """Return the fields of a listed model, with its path if the caller is an administrator."""
    return {
        "alias": alias,
        "path": details.path if caller.context.is_admin else "",
        "parameters": model_facts.parameter_count(details),
        "context_size": details.context,
        "gpu_layers": details.gpu_layers,
        "is_default": details.is_default,
        "active_requests": details.granted,
        "name": details.entry.id,
        "loaded": details.entry.loaded,
        "size_bytes": details.size,
    }


def architecture(details: ModelDetails) -> str:
    """Return the documented class name of an architecture, else the file's own word."""
    word = details.facts.architecture
    return f"{_CLASSES[word]}ForCausalLM" if word in _CLASSES else word


def _unload_failure(failure: Failure, name: str) -> Failure:
    if failure.code is Code.NOT_LOADED:
        return Failure(Code.CONFLICT, f"Model '{name}' is not loaded", model=name)
    if failure.code is Code.MODEL_NOT_FOUND:
        return Failure(Code.MODEL_NOT_FOUND, f"Model '{name}' not found", model=name, param="model")
    return failure
