"""``/api/models`` and ``/api/models/NAME``: the downloaded models; ``DELETE`` removes one, ``POST …/unload`` unloads it."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import falcon
import msgspec

from gateway.api.common.models import model_facts
from gateway.bus.session import SupervisorSession
from gateway.http.request_context import request_context
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


def model_object(details: ModelDetails, alias: str, *, paths: bool) -> dict[str, Any]:
    """Return a model as the list shows it. ``paths``: with its path, which only administrators may see."""
    return {
        "alias": alias,
        "path": details.path if paths else "",
        "parameters": model_facts.parameter_count(details),
        "context_size": details.context,
        "gpu_layers": details.gpu_layers,
        "is_default": details.is_default,
        "active_requests": details.granted,
        "name": details.entry.id,
        "loaded": details.entry.loaded,
        "size_bytes": details.size,
    }


def model_details(details: ModelDetails, alias: str, *, paths: bool) -> dict[str, Any]:
    """Return a model as it is shown alone."""
    return {
        **model_object(details, alias, paths=paths),
        "architecture": architecture(details),
        "vocab_size": details.facts.vocabulary,
        "capabilities": {
            "vision": model_facts.takes_images(details),
            "tools": model_facts.takes_tools(details),
            "thinking": model_facts.thinks(details),
            "json": model_facts.forces_json(details),
        },
    }


def architecture(details: ModelDetails) -> str:
    """Return the documented class name of an architecture, else the file's own word."""
    word = details.facts.architecture
    return f"{_CLASSES[word]}ForCausalLM" if word in _CLASSES else word


def unload_target(path: str) -> str:
    """Return the model in ``NAME/unload``; raises 405 for a model's own path."""
    name = path.removesuffix(UNLOAD)
    if name in (path, ""):
        raise falcon.HTTPMethodNotAllowed(["GET", "HEAD", "DELETE", "OPTIONS"])
    return name


class MullamaModelsResource:
    """``GET /api/models``: the downloaded models, loaded or not."""

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with all of them, loaded ones first."""
        paths = request_context(req.env).is_admin
        found = sorted(model_facts.describe(self._session, req.env), key=lambda details: not details.entry.loaded)
        models = [model_object(details, model_facts.short_name(details.entry), paths=paths) for details in found]
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode({"models": models})


class MullamaModelResource:
    """``/api/models/NAME`` and ``/api/models/NAME/unload``. A name may be a checkpoint, which has slashes."""

    changes: ClassVar[frozenset[str]] = frozenset({"POST", "DELETE"})

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_get(self, req: falcon.Request, resp: falcon.Response, path: str) -> None:
        """Answer with what the model is and can do; 404 if it is not downloaded."""
        if path.endswith(UNLOAD):
            raise falcon.HTTPMethodNotAllowed(["POST", "OPTIONS"])
        context = request_context(req.env)
        context.model = path
        (details,) = model_facts.describe(self._session, req.env, path)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(model_details(details, path, paths=context.is_admin))

    def on_post(self, req: falcon.Request, resp: falcon.Response, path: str) -> None:
        """Unload the model, and answer when its process has ended. A model that is not loaded is a conflict."""
        name = request_context(req.env).model = unload_target(path)
        try:
            self._session.call(req.env, lambda number: UnloadModel(number, name), list[str])
        except LemonbusError as problem:
            raise _unload_failure(problem.failure, name).raised() from None
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode({"status": "unloaded", "alias": name})

    def on_delete(self, req: falcon.Request, resp: falcon.Response, path: str) -> None:
        """Unload the model and remove its files; ``kept_for`` names the models that still use some of them."""
        request_context(req.env).model = path
        deleted = self._session.call(req.env, lambda number: DeleteModel(number, path), Deleted)
        answer = {"status": "deleted", "alias": path, "files_removed": deleted.files, "kept_for": deleted.kept_for}
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(answer)


def _unload_failure(failure: Failure, name: str) -> Failure:
    if failure.code is Code.NOT_LOADED:
        return Failure(Code.CONFLICT, f"Model '{name}' is not loaded", model=name)
    if failure.code is Code.MODEL_NOT_FOUND:
        return Failure(Code.MODEL_NOT_FOUND, f"Model '{name}' not found", model=name, param="model")
    return failure
