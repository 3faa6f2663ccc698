"""JSON Merge Patch (RFC 7396): how one JSON object becomes another one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch that makes ``after`` of ``before``; empty if they are equal. Neither may have a null in it.

    Objects are compared field by field; anything else that differs is replaced as a whole.
    """
    patch: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    for name, value in after.items():
        former = before.get(name)
        if former == value:
            continue
        if isinstance(former, dict) and isinstance(value, dict):
            patch[name] = merge_patch(former, value)
        else:
            patch[name] = value
    return patch
