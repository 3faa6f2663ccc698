"""Which function handles which message: merged from the tables of all handler files, without duplicates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

H = TypeVar("H")


def merge_handlers(tables: Iterable[Mapping[type, H]]) -> dict[type, H]:
    """Return one table of all handlers; raises ``TypeError`` if two tables handle the same message."""
    merged: dict[type, H] = {}
    for table in tables:
        for message, handler in table.items():
            if message in merged:
                raise TypeError(f"{message.__name__} has two handlers: {_name(merged[message])} and {_name(handler)}")
            merged[message] = handler
    return merged


def _name(handler: object) -> str:
    return str(getattr(handler, "__qualname__", handler))
