"""Fields of an answer by the paths with which the documents' requests are checked: ``a.b``, ``list[].c``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

_MISSING: Final = object()


def missing(body: Any, paths: Iterable[str]) -> list[str]:
    """Return the paths that the body lacks.

    Every item of a list must have them, and there must be at least one item.
    """
    return [path for path in paths if any(value is _MISSING for value in values(body, path))]


def values(body: Any, path: str) -> list[Any]:
    """Return the values at a path, and a marker for each one that is missing."""
    found = [body]
    for step in re.findall(r"[^.\[\]]+|\[\]", path):
        if step == "[]":
            found = [item for each in found for item in (each if isinstance(each, list) and each else [_MISSING])]
        else:
            found = [each.get(step, _MISSING) if isinstance(each, dict) else _MISSING for each in found]
    return found
