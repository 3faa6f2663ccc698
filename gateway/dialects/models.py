"""``models`` and ``models/{id}``: the catalogue in OpenAI's form with the fields of all documents."""

from __future__ import annotations

from typing import Any

import falcon
import msgspec

from gateway.dialects.naming import check_cache_dir, flag_in_query, optional_body, text_of
from gateway.house import House
from protocol.admin import GetModel, ListModels, ModelEntry
from protocol.failures import Code, Failure, LemonbusError


def item(entry: ModelEntry, *, whole: bool = False) -> dict[str, Any]:
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
            "supported": not entry.hindrance,
        }
        if entry.hindrance:
            shown["unsupported_reason"] = entry.hindrance
    return shown


def listing(entries: list[ModelEntry], *, whole: bool = False) -> bytes:
    """Return the JSON of a list of models; the whole one has what this machine cannot run, and why, in ``hidden``.

    What is on this machine is never hidden.
    """
    told: dict[str, Any] = {"object": "list"}
    data = [entry for entry in entries if entry.downloaded or not entry.hindrance]
    told["data"] = [item(entry, whole=whole) for entry in data]
    if whole:
        told["hidden"] = [
            {"id": entry.id, "recipe": entry.recipe, "size": entry.size, "reason": entry.hindrance}
            for entry in entries
            if entry.hindrance and not entry.downloaded
        ]
    return msgspec.json.encode(told)


class Models:
    """The list."""

    def __init__(self, house: House) -> None:
        """Ask ``house``."""
        self._house = house

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Downloaded models, or with ``show_all=true`` all that this machine can run."""
        show_all = flag_in_query(req, "show_all")
        check_cache_dir(req.get_param("cache_dir", default=""), self._house.settings)
        entries = self._house.call(req.env, lambda number: ListModels(number, show_all), list[ModelEntry])
        resp.content_type = falcon.MEDIA_JSON
        resp.data = listing(entries, whole=show_all)


class PreviewModels(Models):
    """The list, also for POST: the preview's example asks so."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """The same as GET; ``cache_dir`` may be in the body."""
        settings = self._house.settings
        check_cache_dir(text_of(optional_body(req, settings), "cache_dir"), settings)
        self.on_get(req, resp)


class Model:
    """One entry."""

    def __init__(self, house: House) -> None:
        """Ask ``house``."""
        self._house = house

    def on_get(self, req: falcon.Request, resp: falcon.Response, model_id: str) -> None:
        """The entry, or 404 in the document's words."""
        try:
            entry = self._house.call(req.env, lambda number: GetModel(number, model_id), ModelEntry)
        except LemonbusError as problem:
            if problem.failure.code != Code.MODEL_NOT_FOUND:
                raise
            message = f"Model {model_id} has not been found"
            raise Failure(Code.MODEL_NOT_FOUND, message, model=model_id).raised() from None
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(item(entry, whole=True))
