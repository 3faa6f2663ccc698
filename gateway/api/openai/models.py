"""``models`` and ``models/{id}``: the catalogue in one object with OpenAI's fields, Lemonade's and Anthropic's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple

import falcon
import msgspec

from gateway.access.scopes import Scope
from gateway.api.common.model_facts import rfc3339
from gateway.api.common.request_fields import check_cache_dir, flag_in_query, text_of
from gateway.bus.session import SupervisorSession
from gateway.http.bodies import body_decoding
from gateway.http.request_context import client_of, request_context
from protocol.failures import Code, Failure, LemonbusError, invalid
from protocol.messages.models import GetModel, ListModels, ModelEntry

MAX_PAGE: Final = 1000
"""How many models one page may have."""


class Page(NamedTuple):
    """The part of a list that Anthropic's clients ask for, by the id before or after it."""

    limit: int | None = None
    """None: all."""
    after_id: str = ""
    before_id: str = ""


def model_object(entry: ModelEntry, name: str = "", *, whole: bool = False) -> dict[str, Any]:
    """Return a model as the lists show it, under its registered name or a given one.

    ``whole``: with the additions of ``show_all``.
    """
    shown: dict[str, Any] = {
        "id": name or entry.id,
        "object": "model",
        "type": "model",
        "display_name": name or entry.id,
        "created": entry.created,
        "created_at": rfc3339(entry.created),
        "lifecycle": "active",
        "owned_by": "lemonade",
        "checkpoint": entry.checkpoint,
        "recipe": entry.recipe,
        "device": entry.device,
        "dtype": entry.dtype,
        "labels": entry.labels,
        "recipe_options": entry.saved_options,
    }
    if name and name != entry.id:
        shown["root"] = entry.id
    if entry.context_length:
        shown["context_length"] = entry.context_length
    if entry.max_context_window:
        shown["max_context_window"] = entry.max_context_window
    if whole:
        shown |= {
            "name": entry.id,
            "downloaded": entry.downloaded,
            "size": entry.size,
            "suggested": entry.suggested,
            "model_type": entry.type,
            "loaded": entry.loaded,
            "aliases": entry.other_names,
            "supported": entry.loaded or not entry.unsupported_reason,
            "unsupported_reason": "" if entry.loaded else entry.unsupported_reason,
        }
    return shown


def model_list(entries: list[ModelEntry], page: Page | None = None, *, whole: bool = False) -> bytes:
    """Return the JSON of a list of models; raises ``invalid_request`` if a page refers to a model that is not in it.

    A model appears under each name that it was given, so that clients can offer these. ``whole``: every model appears
    once, for clients that manage models.
    """
    names = [
        _ListedName(name, entry) for entry in entries for name in (entry.id, *(() if whole else entry.given_names))
    ]
    shown, has_more = _cut(names, page or Page())
    answer: dict[str, Any] = {
        "object": "list",
        "data": [model_object(each.entry, each.name, whole=whole) for each in shown],
        "has_more": has_more,
        "first_id": shown[0].name if shown else None,
        "last_id": shown[-1].name if shown else None,
    }
    return msgspec.json.encode(answer)


class _ListedName(NamedTuple):
    name: str
    entry: ModelEntry


def _cut(entries: list[_ListedName], page: Page) -> tuple[list[_ListedName], bool]:
    """Return a page, and whether there are more models in its direction: backward from ``before_id``, else forward."""
    positions = {each.name: position for position, each in enumerate(entries)}
    for name, cursor in (("after_id", page.after_id), ("before_id", page.before_id)):
        if cursor and cursor not in positions:
            raise invalid(f"`{name}` must be the id of a model in the list", name)
    start = positions[page.after_id] + 1 if page.after_id else 0
    end = positions[page.before_id] if page.before_id else len(entries)
    found = entries[start:end]
    if page.limit is None or len(found) <= page.limit:
        return found, False
    return (found[-page.limit :] if page.before_id else found[: page.limit]), True


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
