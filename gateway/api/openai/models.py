"""``models`` and ``models/{id}``: the catalogue in OpenAI's form, with the fields of all documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import falcon
import msgspec

from gateway.access.scopes import Scope
from gateway.api.common.request_fields import check_cache_dir, flag_in_query, optional_body, text_of
from gateway.bus.session import SupervisorSession
from gateway.http.request_context import request_context
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.admin import GetModel, ListModels, ModelEntry


def model_object(entry: ModelEntry, *, whole: bool = False) -> dict[str, Any]:
    """Return a model as the lists show it; ``whole``: with what ``show_all`` adds."""
    shown: dict[str, Any] = {
        "id": entry.id,
        "object": "model",
        "created": entry.created,
        "owned_by": "lemonade",
        "checkpoint": entry.checkpoint,
        "recipe": entry.recipe,
        "device": entry.device,
        "dtype": entry.dtype,
        "labels": entry.labels,
    }
    if whole:
        shown |= {
            "name": entry.id,
            "downloaded": entry.downloaded,
            "size": entry.size,
            "suggested": entry.suggested,
            "type": entry.type,
            "loaded": entry.loaded,
            "aliases": entry.aliases,
            "supported": not entry.unsupported_reason,
        }
        if entry.unsupported_reason:
            shown["unsupported_reason"] = entry.unsupported_reason
    return shown


def model_list(entries: list[ModelEntry], *, whole: bool = False) -> bytes:
    """Return the JSON of a list of models.

    Models that this machine cannot run are left out unless they are downloaded; a ``whole`` list names them, with the reason,
    in ``hidden``.
    """
    answer: dict[str, Any] = {"object": "list"}
    data = [entry for entry in entries if entry.downloaded or not entry.unsupported_reason]
    answer["data"] = [model_object(entry, whole=whole) for entry in data]
    if whole:
        answer["hidden"] = [
            {"id": entry.id, "recipe": entry.recipe, "size": entry.size, "reason": entry.unsupported_reason}
            for entry in entries
            if entry.unsupported_reason and not entry.downloaded
        ]
    return msgspec.json.encode(answer)


class ModelsResource:
    """``GET models``: the list."""

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with the downloaded models, or with ``show_all=true`` with all that this machine can run."""
        show_all = flag_in_query(req, "show_all")
        check_cache_dir(req.get_param("cache_dir", default=""), self._session.settings)
        entries = self._session.call(req.env, lambda number: ListModels(number, show_all), list[ModelEntry])
        resp.content_type = falcon.MEDIA_JSON
        resp.data = model_list(
            [entry for entry in entries if request_context(req.env).may_use(entry.id)], whole=show_all
        )


class PreviewModelsResource(ModelsResource):
    """The list, also for POST, as in the preview's example."""

    scopes: ClassVar[Mapping[str, Scope]] = {"POST": Scope.INFERENCE}

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """The same as GET; ``cache_dir`` may be in the body."""
        settings = self._session.settings
        check_cache_dir(text_of(optional_body(req, settings), "cache_dir"), settings)
        self.on_get(req, resp)


def _not_found(model: str) -> LemonbusError:
    return Failure(Code.MODEL_NOT_FOUND, f"Model {model} has not been found", model=model).raised()


class ModelResource:
    """``GET models/{id}``: one model."""

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_get(self, req: falcon.Request, resp: falcon.Response, model_id: str) -> None:
        """Answer with the model, or 404 with the documented message."""
        try:
            entry = self._session.call(req.env, lambda number: GetModel(number, model_id), ModelEntry)
        except LemonbusError as problem:
            if problem.failure.code != Code.MODEL_NOT_FOUND:
                raise
            raise _not_found(model_id) from None
        if not request_context(req.env).may_use(entry.id):
            raise _not_found(model_id)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(model_object(entry, whole=True))
