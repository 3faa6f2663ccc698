"""``POST /api/models/load``, ``GET /api/defaults`` and ``POST /api/defaults/NAME/use``: loading, and the models of the quick start."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, ClassVar, Final

import falcon
import msgspec
from msgspec import Meta, structs

from gateway.api.common.models import model_facts
from gateway.api.common.models.model_facts import ModelName
from gateway.bus.session import SupervisorSession
from gateway.http.bodies import body_decoding
from gateway.http.request_context import request_context
from protocol.failures import Code, Failure, LemonbusError, invalid
from protocol.messages.model_details import DefaultModel, ListDefaultModels
from protocol.messages.models import Loaded, LoadModel
from protocol.models.recipes import OptionValue

FilePath = Annotated[str, Meta(min_length=1, max_length=4096)]
_FIELD_BY_OPTION: Final = {"ctx_size": "context_size"}
"""Load option → the request's field, if its name differs."""


class MullamaLoadRequest(msgspec.Struct):
    """``POST /api/models/load``."""

    alias: ModelName
    path: FilePath | None = None
    gpu_layers: Annotated[int, Meta(ge=0, le=999)] | None = None
    context_size: Annotated[int, Meta(ge=1, le=2**24)] | None = None
    mmproj: FilePath | None = None
    set_default: bool | None = None


def load_call(request: MullamaLoadRequest) -> partial[LoadModel]:
    """Return the supervisor's message without its number; raises ``invalid_request``."""
    if request.mmproj and not request.path:
        raise invalid("`mmproj` needs `path`: a model of the catalogue has its own", "mmproj")
    given = {"ctx_size": request.context_size, "gpu_layers": request.gpu_layers}
    options: dict[str, OptionValue] = {name: value for name, value in given.items() if value is not None}
    return partial(
        LoadModel,
        model=request.alias,
        options=options,
        path=request.path or "",
        mmproj=request.mmproj or "",
        unless_loaded=True,
        set_default=bool(request.set_default),
    )


def with_own_field(failure: Failure) -> Failure:
    """Return the failure with the field's name in the request."""
    field = _FIELD_BY_OPTION.get(failure.param)
    if field is None:
        return failure
    return structs.replace(failure, param=field, message=failure.message.replace(failure.param, field))


def default_models(models: list[DefaultModel]) -> list[dict[str, Any]]:
    """Return the models of the quick start as the documents show them."""
    return [
        {
            "name": model.name,
            "description": model.description,
            "size_hint": model.size_hint,
            "tags": model.tags,
            "from": f"hf:{model_facts.repository(model.checkpoint)}",
            "has_thinking": "reasoning" in model.labels,
            "has_vision": "vision" in model.labels,
            "has_tools": "tool-calling" in model.labels,
        }
        for model in models
    ]


class _LoadingResource:
    changes: ClassVar[frozenset[str]] = frozenset({"POST"})

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def load(self, req: falcon.Request, resp: falcon.Response, alias: str, build: partial[LoadModel]) -> None:
        """Load a model and answer with its load options."""
        context = request_context(req.env)
        context.model = alias
        try:
            loaded = self._session.call(req.env, build, Loaded)
        except LemonbusError as problem:
            raise with_own_field(problem.failure).raised() from None
        (details,) = model_facts.describe(self._session, req.env, loaded.model)
        answer = {
            "status": "loaded",
            "alias": alias,
            "parameters": model_facts.parameter_count(details),
            "context_size": details.context,
            "gpu_layers": details.gpu_layers,
            "is_default": details.is_default,
        }
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(answer)


class MullamaLoadResource(_LoadingResource):
    """``POST /api/models/load``: loads a model of the catalogue, or a file of this machine under the name ``alias``."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer when the model is ready. A model that is already loaded is a conflict."""
        request, _ = body_decoding.read_object(req, self._session.settings.body_limit, MullamaLoadRequest)
        self.load(req, resp, request.alias, load_call(request))


class DefaultModelsResource:
    """``GET /api/defaults``: the models of the quick start."""

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with a list."""
        models = self._session.call(req.env, ListDefaultModels, list[DefaultModel])
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(default_models(models))


class UseDefaultModelResource(_LoadingResource):
    """``POST /api/defaults/NAME/use``: downloads and loads one of them, and makes it the default model."""

    def on_post(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Answer when the model is ready, even if it already was."""
        models = self._session.call(req.env, ListDefaultModels, list[DefaultModel])
        wanted = name.replace(":", "-")
        if wanted not in [model.name for model in models]:
            known = ", ".join(model.name for model in models)
            reason = f"Default model '{name[:80]}' not found; there are: {known}"
            raise Failure(Code.NOT_FOUND, reason, param="name").raised()
        self.load(req, resp, name, partial(LoadModel, model=wanted, set_default=True))
