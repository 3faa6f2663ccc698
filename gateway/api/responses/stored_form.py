"""What is stored of a response, and what clients see. Pure."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from gateway.api.common.server_sent_events import event
from gateway.api.responses.input.input_items import Item
from protocol.failures import invalid
from protocol.messages.responses import ResponseState, StoredResponse, StoredTurn

_EVENTS: Final = "lemonbus_events"
"""Field added to a stored response that is streamed: its events, which no client sees there."""
MAX_PAGE: Final = 100
"""Items of one page."""
_LOST: Final = {
    "code": "server_error",
    "message": "the process that generated the response has ended: send the request again",
}
_object: Final = msgspec.json.Decoder(dict[str, Any]).decode
_list: Final = msgspec.json.Decoder(list[dict[str, Any]]).decode


class ResponseUsage(msgspec.Struct):
    """Tokens of a response."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens_details: dict[str, int]


class Response(msgspec.Struct):
    """A response: the request's fields, its status, and the items of its output."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed", "cancelled"]
    background: bool
    completed_at: int | None
    error: dict[str, Any] | None
    incomplete_details: dict[str, Any] | None
    instructions: str | None
    model: str
    output: list[dict[str, Any]]
    previous_response_id: str | None
    store: bool
    usage: ResponseUsage | None


class ItemList(msgspec.Struct):
    """A page of the items that a response was generated from."""

    object: Literal["list"]
    data: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool


def stored_turn(own_items: Sequence[Item], response: dict[str, Any]) -> StoredTurn:
    """Return what is stored of a request and its response."""
    return StoredTurn(msgspec.json.encode(own_items), msgspec.json.encode(response))


def with_events(response: dict[str, Any], events: bytes = b"", most: int = 0) -> dict[str, Any]:
    """Return what is stored of a streamed background response. ``events``: all of them, empty while it runs.

    They are left out if they take more than ``most`` bytes.
    """
    kept = base64.b64encode(zlib.compress(events, 1)).decode() if events else ""
    return {**response, _EVENTS: kept if len(kept) <= most else ""}


def events_of(turn: StoredTurn) -> bytes | None:
    """Return the events of a response: empty while it runs or if there were too many to keep, None if it is not streamed."""
    kept = _object(turn.response).get(_EVENTS)
    return zlib.decompress(base64.b64decode(kept)) if kept else None if kept is None else b""


def last_event(stored: StoredResponse, number: int) -> bytes:
    """Return the last event of a response whose events were not kept: it was cancelled, was lost, or had too many."""
    response = shown(stored)
    kind = f"response.{response['status']}" if response["status"] in ("completed", "incomplete") else "response.failed"
    fields = {"type": kind, "sequence_number": number, "response": response}
    return event(kind, fields)


def shown(stored: StoredResponse) -> dict[str, Any]:
    """Return the present response."""
    response = _object(stored.turns[-1].response)
    response.pop(_EVENTS, None)
    if stored.state is ResponseState.CANCELLED:
        response["status"] = "cancelled"
    elif stored.state is ResponseState.LOST:
        response |= {"status": "failed", "error": _LOST}
    return response


def items(turns: Sequence[StoredTurn], *, last_output: bool = True) -> list[Item]:
    """Return the items of a conversation, oldest first.

    The last response's output is only included with ``last_output``.
    """
    found: list[Item] = []
    for position, turn in enumerate(turns):
        found += _list(turn.input)
        if last_output or position < len(turns) - 1:
            found += _object(turn.response)["output"]
    return found


def page(all_items: Sequence[Item], order: str, limit: int, after: str) -> ItemList:
    """Return one page of a list; raises ``invalid_request`` if there is no item ``after``."""
    ordered = list(all_items) if order == "asc" else list(reversed(all_items))
    if after:
        positions = [position for position, item in enumerate(ordered) if item["id"] == after]
        if not positions:
            raise invalid("`after` is not the id of an item of this list", "after")
        ordered = ordered[positions[0] + 1 :]
    data = ordered[:limit]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return ItemList("list", data, first, last, len(ordered) > limit)
