"""Models as ``models`` and ``models/{id}`` show them: OpenAI's fields, Lemonade's and Anthropic's in one object. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from protocol.failures import invalid
from protocol.messages.models import ModelEntry

_EARLIEST: Final = -62135596800
_LATEST: Final = 253402300799
"""The first second of the year 1 and the last of the year 9999: Python has dates between them alone."""
MAX_PAGE: Final = 1000
"""Models that one page may have."""


class Page(NamedTuple):
    """The part of a list that Anthropic's clients ask for, by the id before it or after it."""

    limit: int | None = None
    """None: all."""
    after_id: str = ""
    before_id: str = ""


def model_object(entry: ModelEntry, *, whole: bool = False) -> dict[str, Any]:
    """Return a model as the lists show it; ``whole``: with what ``show_all`` adds."""
    shown: dict[str, Any] = {
        "id": entry.id,
        "object": "model",
        "type": "model",
        "display_name": entry.id,
        "created": entry.created,
        "created_at": rfc3339(entry.created),
        "lifecycle": "active",
        "owned_by": "lemonade",
        "checkpoint": entry.checkpoint,
        "recipe": entry.recipe,
        "device": entry.device,
        "dtype": entry.dtype,
        "labels": entry.labels,
    }
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
            "aliases": entry.aliases,
            "supported": not entry.unsupported_reason,
            "unsupported_reason": entry.unsupported_reason,
        }
    return shown


def model_list(entries: list[ModelEntry], page: Page | None = None, *, whole: bool = False) -> bytes:
    """Return the JSON of a list of models; raises ``invalid_request`` for a page beside a model that is not in it."""
    shown, has_more = _cut(entries, page or Page())
    answer: dict[str, Any] = {
        "object": "list",
        "data": [model_object(entry, whole=whole) for entry in shown],
        "has_more": has_more,
        "first_id": shown[0].id if shown else None,
        "last_id": shown[-1].id if shown else None,
    }
    return msgspec.json.encode(answer)


def _cut(entries: list[ModelEntry], page: Page) -> tuple[list[ModelEntry], bool]:
    """Return a page, and whether there is more in its direction: back from ``before_id``, else forward."""
    positions = {entry.id: position for position, entry in enumerate(entries)}
    for name, cursor in (("after_id", page.after_id), ("before_id", page.before_id)):
        if cursor and cursor not in positions:
            raise invalid(f"`{name}` must be the id of a model in the list", name)
    start = positions[page.after_id] + 1 if page.after_id else 0
    end = positions[page.before_id] if page.before_id else len(entries)
    found = entries[start:end]
    if page.limit is None or len(found) <= page.limit:
        return found, False
    return (found[-page.limit :] if page.before_id else found[: page.limit]), True


def rfc3339(seconds: int) -> str:
    """Return a time as RFC 3339 writes it; one beyond the years 1 to 9999, which a file may have, is the nearest of those."""
    bounded = max(_EARLIEST, min(seconds, _LATEST))
    # strftime writes a year before 1000 with fewer than four digits.
    return datetime.fromtimestamp(bounded, UTC).isoformat().replace("+00:00", "Z")
