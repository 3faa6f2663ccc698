"""Takes out of a plan what this server would refuse, with the server's own reason for each part."""

from __future__ import annotations

import re
from typing import Any, Final

from protocol.config import resolver
from protocol.config.config_file import ConfigFile
from protocol.config.import_plan import ImportPlan
from protocol.config.sections import dotted_name
from protocol.config.toml_edit import section_text, written_key, written_value
from protocol.failures import LemonbusError, printable
from supervisor.models.options.settings_check import check_settings

_ESSENTIAL: Final = frozenset({"path", "command", "url", "models"})
"""Keys without which a section is not what was planned."""
_FILE: Final = "import"


def remove_refused(plan: ImportPlan) -> None:
    """Remove what the configuration or a recipe does not accept, and note it; raises what is wrong with no part of the plan."""
    while True:
        try:
            check_settings(resolver.resolve({}, {}, ConfigFile(_FILE, text_of(plan)), "/").settings)
        except LemonbusError as problem:
            name = problem.failure.param or ""
            reason = re.sub(rf"^(?:{_FILE}:\d+: )?(?:{re.escape(name)}: )?", "", str(problem))
            if not _removed(plan, name, printable(reason, 300)):
                raise
        else:
            return


def text_of(plan: ImportPlan) -> str:
    """Return a configuration file that has nothing but the plan."""
    settings = "".join(f"{written_key((name,))} = {written_value(value)}\n" for name, value in plan.settings.items())
    return settings + "".join(f"\n{section_text(path, values)}" for path, values in plan.sections())


def _removed(plan: ImportPlan, name: str, reason: str) -> bool:
    """Remove the part of a plan with this dotted name; return whether there is one."""
    if name in plan.settings:
        plan.leave("", f"{name} = {plan.settings.pop(name)}", reason)
        return True
    for (kind, section), values in list(plan.sections()):
        model = section if kind == "models" else ""
        key, entry = _part_of((kind, section), values, name)
        if key is None:
            continue
        if not key or key in _ESSENTIAL:
            getattr(plan, kind).pop(section)
            plan.leave(model, f"[{dotted_name((kind, section))}]", reason)
        elif entry:
            value = printable(str(values[key].pop(entry)), 100)
            plan.leave(model, f"{key}.{entry}" if key == "env" else f"{key}.{entry} = {value}", reason)
            if not values[key]:
                del values[key]
        else:
            plan.leave(model, f"{key} = {printable(str(values.pop(key)), 200)}", reason)
        return True
    return False


def _part_of(path: tuple[str, str], values: dict[str, Any], name: str) -> tuple[str | None, str]:
    """Return the key and the entry of a section that a dotted name means; no key if it means the whole section, None if none of it."""
    if name == dotted_name(path):
        return "", ""
    for key, value in values.items():
        if name == dotted_name((*path, key)):
            return key, ""
        for entry in value if isinstance(value, dict) else ():
            if name == dotted_name((*path, key, entry)):
                return key, str(entry)
    return None, ""
