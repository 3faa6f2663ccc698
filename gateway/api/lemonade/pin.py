"""``pin``: a loaded model is never evicted for another one, or may be evicted again."""

from __future__ import annotations

from typing import ClassVar, Final

import falcon
import msgspec

from gateway.api.common.request_fields import flag_of, model_of, optional_body, params_as_sent
from gateway.bus.session import SupervisorSession
from gateway.http.request_context import request_context
from protocol.failures import invalid
from protocol.messages.models import PinModel

_FIELDS: Final = frozenset({"model_name", "model", "pinned"})


class PinResource:
    """``POST pin``: pins a loaded model until it is unloaded, or unpins it."""

    changes: ClassVar[frozenset[str]] = frozenset({"POST"})

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer at once; a model that is not loaded is 404."""
        body = optional_body(req, self._session.settings)
        unknown = next((key for key in body if key not in _FIELDS), "")
        if unknown:
            raise invalid("pin takes `model_name` and `pinned`", unknown[:80])
        name = request_context(req.env).model = model_of(body)
        if body.get("pinned") is None:
            raise invalid("`pinned` is required: true or false", "pinned")
        pinned = flag_of(body, "pinned")
        with params_as_sent(body):
            model = self._session.call(req.env, lambda number: PinModel(number, name, pinned), str)
        request_context(req.env).model = model
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode({"status": "success", "model_name": model, "pinned": pinned})
