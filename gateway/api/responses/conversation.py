"""The whole conversation of a request: what was stored before, and what the request adds; and the ids of its items.

An item's id contains its response's, so that a reference to an item is found.
"""

from __future__ import annotations

import itertools
import re
import secrets
from typing import Any, Final

from gateway.api.responses.input.input_items import Item, NewId, read_items, references
from gateway.api.responses.input.request import ResponseRequest
from gateway.api.responses.store_client import StoreClient
from gateway.fetching.image_source import ImageSource
from protocol.failures import invalid

_ITEM: Final = re.compile(r"[a-z]{1,8}_([0-9a-f]{32})[0-9a-f]{4}")


class ResponseIds:
    """The ids of one response, its own and those of its items.

    They cannot be guessed: without API keys, an id is all that a client needs to read a stored response.
    """

    def __init__(self) -> None:
        """Choose the response's id."""
        self._token = secrets.token_hex(16)
        self._numbers = itertools.count(1)

    def __call__(self, prefix: str) -> str:
        """Return the response's id for the prefix ``resp``, else a new id for an item."""
        if prefix == "resp":
            return f"resp_{self._token}"
        return f"{prefix}_{self._token}{next(self._numbers) & 0xFFFF:04x}"


def response_of(item_id: str) -> str:
    """Return the id of the response that an item was made for; empty if the item's id is not one of ours."""
    match = _ITEM.fullmatch(item_id)
    return f"resp_{match.group(1)}" if match else ""


MAX_REFERRED_RESPONSES: Final = 100
"""How many stored responses are read to resolve the references of one request."""


def read_conversation(
    store: StoreClient, env: dict[str, Any], request: ResponseRequest, new_id: NewId, image: ImageSource
) -> tuple[list[Item], list[Item]]:
    """Return the items before the request, and its own; raises ``invalid_request`` for what is wrong or not stored.

    ``image``: resolves the URLs of images.
    """
    previous = request.previous_response_id
    earlier = store.conversation(env, previous) if previous else []
    return earlier, read_items(request.input, _known(store, env, request, earlier), new_id, image)


def _known(store: StoreClient, env: dict[str, Any], request: ResponseRequest, earlier: list[Item]) -> list[Item]:
    """Return the items that the request may refer to: those of the conversation, and of responses that it does not name."""
    ids = {item["id"] for item in earlier}
    others = {response_of(each) for each in references(request.input) if each not in ids} - {""}
    if len(others) > MAX_REFERRED_RESPONSES:
        raise invalid(f"`input` refers to items of more than {MAX_REFERRED_RESPONSES} responses", "input")
    return [*earlier, *(item for other in others for item in store.items(env, other))]
