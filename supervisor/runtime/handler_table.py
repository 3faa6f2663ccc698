"""Which function handles which message: merged from the tables of all handlers, without duplicates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Handler = Callable[[str, Any, bytes], None]
"""(the peer that sent the message, the message, its payload)."""


def merge_handlers(tables: Iterable[Mapping[type, Handler]]) -> dict[type, Handler]:
    """Return one table of all handlers; raises ``TypeError`` if two tables handle the same message."""
    merged: dict[type, Handler] = {}
    for table in tables:
        for message, handler in table.items():
            if message in merged:
                raise TypeError(f"{message.__name__} has two handlers: {_name(merged[message])} and {_name(handler)}")
            merged[message] = handler
    return merged


def _name(handler: object) -> str:
    return str(getattr(handler, "__qualname__", handler))
