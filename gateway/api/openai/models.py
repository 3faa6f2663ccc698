"""``models`` and ``models/{id}``: the catalogue in OpenAI's form, with the fields of all documents and of Anthropic's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import falcon
import msgspec

from gateway.access.scopes import Scope
from gateway.api.common.models.model_list import MAX_PAGE, Page, model_list, model_object
from gateway.api.common.request_fields import check_cache_dir, flag_in_query, text_of
from gateway.bus.session import SupervisorSession
from gateway.http.bodies import body_decoding
from gateway.http.request_context import client_of, request_context
from protocol.failures import Code, Failure, LemonbusError, invalid
from protocol.messages.models import GetModel, ListModels, ModelEntry


class ModelsResource:
    """``GET models``: the list."""

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with the downloaded models, or with ``show_all=true`` with all, and whether this machine can run each.

        ``limit``, ``after_id`` and ``before_id`` choose a part of the list.
        """
        show_all = flag_in_query(req, "show_all")
        check_cache_dir(req.get_param("cache_dir", default=""), self._session.settings)
        entries = self._session.call(req.env, lambda number: ListModels(number, show_all), list[ModelEntry])
        resp.content_type = falcon.MEDIA_JSON
        shown = [entry for entry in entries if request_context(req.env).may_use(entry.id)]
        resp.data = model_list(shown, page_of(req), whole=show_all)


class PreviewModelsResource(ModelsResource):
    """The list, also by POST, as in the preview's example."""

    scopes: ClassVar[Mapping[str, Scope]] = {"POST": Scope.INFERENCE}

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """As GET; ``cache_dir`` may be in the body."""
        settings = self._session.settings
        body = body_decoding.decode_object(
            body_decoding.read_optional_json(req, settings.body_limit), client_of(req.env)
        )
        check_cache_dir(text_of(body, "cache_dir"), settings)
        self.on_get(req, resp)


def page_of(req: falcon.Request) -> Page:
    """Return the part of the list that a request asks for; raises ``invalid_request``."""
    given = req.get_param("limit")
    if given is not None and not (given.isascii() and given.isdigit() and 1 <= int(given[:5]) <= MAX_PAGE):
        raise invalid(f"`limit` must be a whole number from 1 to {MAX_PAGE}", "limit")
    limit = None if given is None else int(given)
    return Page(limit, req.get_param("after_id", default=""), req.get_param("before_id", default=""))


def _not_found(model: str) -> LemonbusError:
    return Failure(Code.MODEL_NOT_FOUND, f"Model {model} has not been found", model=model).raised()


class ModelResource:
    """``GET models/{id}``: one model."""

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_get(self, req: falcon.Request, resp: falcon.Response, model_id: str) -> None:
        """Answer with the model, under the requested name if it has that one, or 404 with the documented message."""
        try:
            entry = self._session.call(req.env, lambda number: GetModel(number, model_id), ModelEntry)
        except LemonbusError as problem:
            if problem.failure.code != Code.MODEL_NOT_FOUND:
                raise
            raise _not_found(model_id) from None
        if not request_context(req.env).may_use(entry.id):
            raise _not_found(model_id)
        resp.content_type = falcon.MEDIA_JSON
        name = model_id if model_id in entry.given_names else ""
        resp.data = msgspec.json.encode(model_object(entry, name, whole=True))
