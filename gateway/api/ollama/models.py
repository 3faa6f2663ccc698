"""``/api/tags``, ``/api/ps``, ``/api/show``, ``/api/copy`` and ``/api/delete``: the downloaded models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, TypeVar

import falcon
import msgspec

from gateway.access.scopes import Scope
from gateway.api.common.models import model_facts
from gateway.api.common.models.model_facts import ModelName
from gateway.api.ollama import model_answers
from gateway.bus.session import SupervisorSession
from gateway.http.bodies import body_decoding
from gateway.http.request_context import request_context
from protocol.failures import invalid
from protocol.messages.model_details import CopyModel
from protocol.messages.model_files import Deleted, DeleteModel

T = TypeVar("T")


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


class _ModelsResource:
    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def request(self, req: falcon.Request, cls: type[T]) -> T:
        """Return a request's JSON as ``cls``."""
        return body_decoding.read_object(req, self._session.settings.body_limit, cls)[0]


class TagsResource(_ModelsResource):
    """``GET /api/tags``."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with the downloaded models, newest first, each under all its given names."""
        found = sorted(model_facts.describe(self._session, req.env), key=lambda details: -details.modified)
        items = [item for details in found for item in model_answers.list_items(details)]
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode({"models": items})


class RunningModelsResource(_ModelsResource):
    """``GET /api/ps``."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with the loaded models."""
        found = model_facts.describe(self._session, req.env)
        items = [model_answers.running_item(details) for details in found if details.entry.loaded]
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode({"models": items})


class ShowResource(_ModelsResource):
    """``POST /api/show``."""

    scopes: ClassVar[Mapping[str, Scope]] = {"POST": Scope.INFERENCE}

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer with everything known about a downloaded model."""
        name = request_context(req.env).model = self.request(req, NamedModelRequest).wanted()
        (details,) = model_facts.describe(self._session, req.env, name)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(model_answers.show_answer(details, name))


class CopyResource(_ModelsResource):
    """``POST /api/copy``: another name for a model, which shares its files and its engine."""

    changes: ClassVar[frozenset[str]] = frozenset({"POST"})

    def on_post(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Answer without a body."""
        request = self.request(req, CopyRequest)
        request_context(req.env).model = request.source
        self._session.call(req.env, lambda number: CopyModel(number, request.source, request.destination), str)


class OllamaDeleteResource(_ModelsResource):
    """``DELETE /api/delete``: removes a copy's name, or a model with its files."""

    changes: ClassVar[frozenset[str]] = frozenset({"DELETE"})

    def on_delete(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Answer without a body."""
        name = request_context(req.env).model = self.request(req, NamedModelRequest).wanted()
        self._session.call(req.env, lambda number: DeleteModel(number, name, name_only=True), Deleted)
