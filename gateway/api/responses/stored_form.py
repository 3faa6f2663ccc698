"""What is stored of a response, and what is shown of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gateway.api.responses.input.input_items import Item
from protocol.failures import invalid
from protocol.messages.responses import ResponseState, StoredResponse, StoredTurn

MAX_PAGE: Final = 100
"""Items of one page."""
_LOST: Final = {
    "code": "server_error",
    "message": "the process that generated the response has ended: send the request again",
}
_object: Final = msgspec.json.Decoder(dict[str, Any]).decode
_list: Final = msgspec.json.Decoder(list[dict[str, Any]]).decode


def stored_turn(own_items: Sequence[Item], response: dict[str, Any]) -> StoredTurn:
    """Return what is stored of a request and its response."""
    return StoredTurn(msgspec.json.encode(own_items), msgspec.json.encode(response))


def shown(stored: StoredResponse) -> dict[str, Any]:
    """Return the response as it is now."""
    response = _object(stored.turns[-1].response)
    if stored.state is ResponseState.CANCELLED:
        response["status"] = "cancelled"
    elif stored.state is ResponseState.LOST:
        response |= {"status": "failed", "error": _LOST}
    return response


def items(turns: Sequence[StoredTurn], *, last_output: bool = True) -> list[Item]:
    """Return the items of a conversation, oldest first; without the last response's own, unless ``last_output``."""
    found: list[Item] = []
    for position, turn in enumerate(turns):
        found += _list(turn.input)
        if last_output or position < len(turns) - 1:
            found += _object(turn.response)["output"]
    return found


def page(all_items: Sequence[Item], order: str, limit: int, after: str) -> dict[str, Any]:
    """Return one page of a list; raises ``invalid_request`` if there is no item ``after``."""
    ordered = list(all_items) if order == "asc" else list(reversed(all_items))
    if after:
        positions = [position for position, item in enumerate(ordered) if item["id"] == after]
        if not positions:
            raise invalid("`after` is the id of no item of this list", "after")
        ordered = ordered[positions[0] + 1 :]
    data = ordered[:limit]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": len(ordered) > limit,
    }
