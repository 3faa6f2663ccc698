"""``delete``: removes a model from this machine."""

from __future__ import annotations

from typing import ClassVar

import falcon
import msgspec

from gateway.api.common.request_fields import model_of, optional_body, params_as_sent
from gateway.bus.session import SupervisorSession
from gateway.http.request_context import request_context
from protocol.messages.model_files import Deleted, DeleteModel


class DeleteResource:
    """``POST delete``: unloads a model, unregisters it if a user registered it, and removes the files no other model uses."""

    changes: ClassVar[frozenset[str]] = frozenset({"POST"})

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer when the model is removed; ``kept_for`` names the models that still use its files."""
        body = optional_body(req, self._session.settings)
        name = request_context(req.env).model = model_of(body)
        with params_as_sent(body):
            deleted = self._session.call(req.env, lambda number: DeleteModel(number, name), Deleted)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(
            {
                "status": "success",
                "message": f"Deleted model: {deleted.name}",
                "model_name": deleted.name,
                "files_removed": deleted.files,
                "kept_for": deleted.kept_for,
            }
        )
