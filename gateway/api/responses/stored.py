"""Routes of stored responses: ``GET``, ``DELETE``, ``input_items`` and ``cancel`` of ``responses/{id}``."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gateway.api.common.operations import EVENT_STREAM, NOT_FOUND, Stream
from gateway.api.common.routes import Content, HttpCaller, route
from gateway.api.common.unsupported import unsupported
from gateway.api.responses import stored_form
from gateway.api.responses.background import BackgroundRuns
from gateway.api.responses.background_stream import ResumedStream
from gateway.api.responses.store_client import StoreClient
from gateway.api.responses.stored_form import ItemList, Response
from protocol.config.api_keys import Scope
from protocol.failures import invalid

_PATH = "responses/{response_id}"
_Id = Annotated[str, Meta(min_length=1)]


class ResponseId(msgspec.Struct):
    """A response."""

    response_id: _Id


class StoredResponseQuery(msgspec.Struct):
    """With `stream`, the events of a background response that was requested as a stream, even while it runs."""

    response_id: _Id
    stream: bool = False
    starting_after: Annotated[int, Meta(ge=0, le=999_999_999)] | None = None
    """Only with `stream`: send the events after the one with this number."""


class DeletedResponse(msgspec.Struct):
    """A response is forgotten."""

    id: str
    object: Literal["response"]
    deleted: bool


class ItemsQuery(msgspec.Struct):
    """Which page."""

    response_id: _Id
    order: Literal["asc", "desc"] = "desc"
    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=stored_form.MAX_PAGE)] = 20


@route(
    "GET",
    _PATH,
    answer=Response,
    stream=Stream(
        EVENT_STREAM, 'event: response.completed\ndata: {"type":"response.completed","sequence_number":9}\n\n'
    ),
    failures=NOT_FOUND,
)
def show_response(caller: HttpCaller, query: StoredResponseQuery) -> dict[str, Any] | Content:
    """Shows a stored response."""
    read = partial(StoreClient(caller.session).get, caller.env, query.response_id)
    if not query.stream:
        if query.starting_after is not None:
            raise invalid("`starting_after` needs `stream`", "starting_after")
        return stored_form.shown(read())
    stream = ResumedStream(
        caller.context,
        read,
        partial(caller.session.part(BackgroundRuns).feed, query.response_id),
        -1 if query.starting_after is None else query.starting_after,
        caller.session.settings.header_silence,
    )
    return Content(stream.media_type, stream)


@route("DELETE", _PATH, scope=Scope.INFERENCE, failures=NOT_FOUND)
def delete_response(caller: HttpCaller, response: ResponseId) -> DeletedResponse:
    """Forgets a stored response."""
    StoreClient(caller.session).delete(caller.env, response.response_id)
    return DeletedResponse(response.response_id, "response", deleted=True)


@route("GET", f"{_PATH}/input_items", failures=NOT_FOUND)
def list_input_items(caller: HttpCaller, query: ItemsQuery) -> ItemList:
    """Lists what a response was generated from."""
    items = StoreClient(caller.session).input_items(caller.env, query.response_id)
    return stored_form.page(items, query.order, query.limit, query.after)


@route("POST", f"{_PATH}/cancel", answer=Response, scope=Scope.INFERENCE, failures=NOT_FOUND)
def cancel_response(caller: HttpCaller, response: ResponseId) -> dict[str, Any]:
    """Cancels a response of the background."""
    cancelled = StoreClient(caller.session).cancel(caller.env, response.response_id)
    if not cancelled["background"]:
        raise invalid("only responses with `background` true can be cancelled", "response_id")
    return cancelled


compact_response = unsupported(
    "POST", "responses/compact", "compaction is", "send a shorter `input`, or `truncation` auto"
)
