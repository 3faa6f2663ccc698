"""What a reload has changed: as a table, and what became of one setting."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from gateway.api.operator.configuration import SettingInUse
from gateway.api.operator.reload import ReloadAnswer
from gateway.cli import output
from protocol.messages.reload import SettingChange

_IN_FILE: Final = re.compile(r"(/.*):\d+")
"""The origin of a setting in a file, with its line."""


def print_changes(answer: ReloadAnswer) -> None:
    """Print the changes with the moment when each takes effect."""
    output.table(("SETTING", "OLD", "NEW", "TAKES EFFECT"), [_row(change) for change in answer.changes])


def _row(change: SettingChange) -> tuple[str, str, str, str]:
    effects = ", ".join(change.effects)
    models = f": {', '.join(map(output.plain, change.models))}" if change.models else ""
    old, new = (json.dumps(value, ensure_ascii=False) for value in (change.old, change.new))
    return output.plain(change.setting), old, new, effects + models


def notice_of(
    setting: str, wanted: Mapping[str, Any], answer: ReloadAnswer, running: Mapping[str, SettingInUse]
) -> str:
    """Return what an operator should know about a setting that was written into a file; empty: the changes say everything.

    ``setting``: its name, or that of a section. ``wanted``: what the file says; ``running``: what the server uses after the
    reload; both by their dotted names.
    """
    if any(is_part(setting, change.setting) or is_part(change.setting, setting) for change in answer.changes):
        return ""
    used = {name: each for name, each in running.items() if is_part(setting, name)}
    if {name: each.value for name, each in used.items()} == wanted:
        return "the server used this already"
    origin = next((each.origin for each in used.values()), "default")
    if origin.startswith(("--", "LEMON")):
        return f"no effect: the server was started with {origin}, which takes precedence over the file"
    files = (found[1] for each in running.values() if (found := _IN_FILE.fullmatch(each.origin)))
    other = next(files, "")
    return "no effect: the server does not read this file" + (f", but {other}" if other else "")


def is_part(whole: str, name: str) -> bool:
    """Return whether a setting is another one, or is in that section or table."""
    return name == whole or name.startswith(f"{whole}.")
