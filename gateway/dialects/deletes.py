"""``delete``: takes a model off this machine."""

from __future__ import annotations

from typing import ClassVar

import falcon
import msgspec

from gateway.dialects.naming import model_of, optional_body
from gateway.house import House
from gateway.visit import of
from protocol.shelf import Deleted, DeleteModel


class Delete:
    """Unload a model, forget it if a user registered it, and remove what nobody else uses."""

    changes: ClassVar[frozenset[str]] = frozenset({"POST"})

    def __init__(self, house: House) -> None:
        """Ask ``house``."""
        self._house = house

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer when it is gone; ``kept_for`` names the models that still use its files."""
        name = of(req.env).model = model_of(optional_body(req, self._house.settings))
        deleted = self._house.call(req.env, lambda number: DeleteModel(number, name), Deleted)
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
