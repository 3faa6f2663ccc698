"""``load`` and ``unload``: lemonade's and the preview's requests and answers."""

from __future__ import annotations

from typing import ClassVar, Final

import falcon
import msgspec

from gateway.api.common.request_fields import (
    JsonObject,
    check_cache_dir,
    check_load_words,
    chosen_options,
    flag_of,
    model_of,
    optional_body,
    params_as_sent,
    text_of,
    ttl_of,
)
from gateway.bus.session import SupervisorSession
from gateway.http.request_context import request_context
from protocol.failures import Code, Failure, LemonbusError, invalid
from protocol.messages.models import Loaded, LoadModel, UnloadModel

_REQUEST_FIELDS: Final = frozenset(
    {"model_name", "model", "save_options", "merge_args", "pinned", "ttl", "cache_dir", "device", "dtype", "checkpoint"}
    | {"recipe"}
)
"""Everything else in a load request is an option of the model's recipe."""
_NOT_FOUND: Final = (Code.MODEL_NOT_FOUND, Code.NOT_LOADED)
"""Failures of an unload for which the document has one message."""
_NAME_FIELDS: Final = ("model_name", "model")
_METHODS: Final = ["GET", "POST", "OPTIONS"]


def load_call(number: int, body: JsonObject) -> LoadModel:
    """Return the supervisor's message for a load request; raises ``invalid_request`` naming the wrong field."""
    model = model_of(body)
    check_load_words(text_of(body, "device"), text_of(body, "dtype"))
    options = chosen_options({key: value for key, value in body.items() if key not in _REQUEST_FIELDS})
    merge_args = flag_of(body, "merge_args") if body.get("merge_args") is not None else None
    pinned = flag_of(body, "pinned") if body.get("pinned") is not None else None
    recipe, device = text_of(body, "recipe"), text_of(body, "device").lower()
    save_options = flag_of(body, "save_options")
    return LoadModel(number, model, options, save_options, pinned, ttl_of(body), recipe, device, merge_args=merge_args)


def unload_name(body: JsonObject) -> str:
    """Return the model that an unload request names, empty for all.

    Raises ``invalid_request`` for an empty name and for unknown fields: a mistyped field must not unload all models.
    """
    unknown = next((key for key in body if key not in _NAME_FIELDS), "")
    if unknown:
        raise invalid("unload takes `model_name`, or nothing to unload all models", unknown[:80])
    for key in _NAME_FIELDS:
        if body.get(key) == "":
            raise invalid(f"`{key}` is empty", key)
    return model_of(body, required=False)


def named_in_query(req: falcon.Request) -> JsonObject:
    """Return the model that a GET request names in its query, as its body would."""
    return {key: req.params[key] for key in _NAME_FIELDS if key in req.params}


class LoadResource:
    """``POST load``: loads a model, after downloading it if necessary."""

    changes: ClassVar[frozenset[str]] = frozenset({"POST"})

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer when the model is ready."""
        self._load(req, resp, optional_body(req, self._session.settings))

    def _load(self, req: falcon.Request, resp: falcon.Response, body: JsonObject) -> None:
        check_cache_dir(text_of(body, "cache_dir"), self._session.settings)
        requested = request_context(req.env).model = load_call(0, body).model
        with params_as_sent(body):
            loaded = self._session.call(req.env, lambda number: load_call(number, body), Loaded)
        request_context(req.env).model = loaded.model
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(
            {
                "status": "success",
                "message": f"Loaded model: {requested}",
                "model_name": loaded.model,
                "model": loaded.model,
                "checkpoint": loaded.checkpoint,
                "recipe": loaded.recipe,
            }
        )


class PreviewLoadResource(LoadResource):
    """The preview's ``load``: GET loads too."""

    changes: ClassVar[frozenset[str]] = frozenset({"GET", "POST"})

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """The same as POST; the model may also be named in the query."""
        body = optional_body(req, self._session.settings)
        self._load(req, resp, {**named_in_query(req), **body})

    def on_head(self, _req: falcon.Request, _resp: falcon.Response) -> None:
        """Refuse: HEAD must not load a model."""
        raise falcon.HTTPMethodNotAllowed(_METHODS)


class UnloadResource:
    """``POST unload``: unloads one model, or all."""

    changes: ClassVar[frozenset[str]] = frozenset({"POST"})

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer when the model's processes have ended; a model that is not loaded is 404."""
        self._unload(req, resp, optional_body(req, self._session.settings))

    def _unload(self, req: falcon.Request, resp: falcon.Response, body: JsonObject) -> None:
        name = request_context(req.env).model = unload_name(body)
        try:
            unloaded = self._session.call(req.env, lambda number: UnloadModel(number, name), list[str])
        except LemonbusError as problem:
            code = problem.failure.code
            if code not in _NOT_FOUND:
                raise
            raise Failure(Code.MODEL_NOT_FOUND, f"Model not found: {name}", model=name).raised() from None
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(
            {"status": "success", "message": "Model unloaded successfully", "model_name": name, "unloaded": unloaded}
        )


class PreviewUnloadResource(UnloadResource):
    """The preview's ``unload``: GET unloads too."""

    changes: ClassVar[frozenset[str]] = frozenset({"GET", "POST"})

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """The same as POST; the model may also be named in the query."""
        self._unload(req, resp, {**named_in_query(req), **optional_body(req, self._session.settings)})

    def on_head(self, _req: falcon.Request, _resp: falcon.Response) -> None:
        """Refuse: HEAD must not unload a model."""
        raise falcon.HTTPMethodNotAllowed(_METHODS)
