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


def apply_patch(before: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a patch makes of ``before``, which stays as it is."""
    after = {name: value for name, value in before.items() if patch.get(name, value) is not None}
    for name, value in patch.items():
        if isinstance(value, dict):
            former = before.get(name)
            after[name] = apply_patch(former if isinstance(former, dict) else {}, value)
        elif value is not None:
            after[name] = value
    return after
