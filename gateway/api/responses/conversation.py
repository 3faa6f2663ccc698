"""The whole conversation of a request: what was stored before, and what the request adds."""

from __future__ import annotations

from typing import Any, Final

from gateway.api.responses.input.input_items import Item, NewId, read_items, references
from gateway.api.responses.input.request import ResponseRequest
from gateway.api.responses.item_ids import response_of
from gateway.api.responses.stored import StoreClient
from gateway.fetching.image_source import ImageSource
from protocol.failures import invalid

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
