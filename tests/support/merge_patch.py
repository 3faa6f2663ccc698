"""Applies a JSON Merge Patch, as RFC 7396 defines it, for clients of the overview."""

from __future__ import annotations

from typing import Any


def patched(target: Any, patch: Any) -> Any:
    """Return ``target`` with ``patch`` applied to it; neither is changed."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = patched(result.get(name), value)
    return result
