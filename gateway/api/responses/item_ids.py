"""The ids of a response and of its items.

An item's id contains its response's, so that a reference to an item is found. Pure.
"""

from __future__ import annotations

import itertools
import re
import secrets
from typing import Final

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
