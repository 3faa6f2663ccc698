"""Models as ``models`` and ``models/{id}`` show them: OpenAI's fields, Lemonade's and Anthropic's in one object. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from protocol.failures import invalid
from protocol.messages.models import ModelEntry

_EARLIEST: Final = -62135596800
_LATEST: Final = 253402300799
"""The first second of the year 1 and the last of the year 9999: the range of Python's dates."""
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


def rfc3339(seconds: int) -> str:
    """Return a time in RFC 3339's form.

    A file may have a time outside the years 1 to 9999: it becomes the nearest one inside.
    """
    bounded = max(_EARLIEST, min(seconds, _LATEST))
    # strftime writes years before 1000 with fewer than four digits.
    return datetime.fromtimestamp(bounded, UTC).isoformat().replace("+00:00", "Z")
