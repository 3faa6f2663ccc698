"""Applies the plan of an import to the configuration file: adds its sections, has the server read them, and asks it for the models."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from gateway.api.openai.models import ModelsQuery, list_models
from gateway.cli import polling
from gateway.cli.api_client import ApiClient
from gateway.cli.config_change import ChangedFile, change_file
from gateway.cli.exit_codes import CommandError
from gateway.cli.settings import recipe_warnings, resolved_text
from protocol.config.import_plan import ImportPlan, LeftOut
from protocol.config.sections import MASK, dotted_name
from protocol.config.toml_edit import UnchangeableError, with_section, with_value, without_value
from protocol.config.toml_lines import KeyPath

Change = Literal["added", "extended", "replaced", "unchanged", "kept"]
READY_S: Final = 15.0
"""Seconds in which a server that has read the file must list its models; it takes less than one on a quiet machine."""


_KINDS: Final = frozenset({"path", "command", "url", "models"})
"""Keys that say what a section is: they are never added to one."""


class Step(msgspec.Struct, frozen=True):
    """What becomes of one section or setting of a plan."""

    setting: str
    """Its dotted name."""
    change: Change
    """``unchanged``: the file says this already. ``extended``: it had a part of it, and has the rest now. ``kept``: it says something
    else, which stays."""
    value: Any
    """What the plan has. Variables of engines are masked."""


class Edited(NamedTuple):
    """A file's text with a plan in it."""

    text: str
    steps: list[Step]
    left_out: list[LeftOut]


class Imported(NamedTuple):
    """An applied plan."""

    steps: list[Step]
    left_out: list[LeftOut]
    changed: ChangedFile
    missing: list[str]
    """Models of the plan that the server does not list as usable."""


def edited(text: str, plan: ImportPlan, *, replace: bool) -> Edited:
    """Return a valid TOML text with the sections and settings of a plan; raises ``CommandError`` for a form that cannot be changed.

    What the file says already about a section or a setting stays, unless ``replace``. Pure.
    """
    steps: list[Step] = []
    left_out = list(plan.left_out)
    try:
        for name, value in plan.settings.items():
            given = tomllib.loads(text)
            change = _change(given, (name,), value, replace=replace)
            if change in ("added", "replaced"):
                text = with_value(text, (name,), value)
            steps.append(Step(name, change, value))
        for path, planned in plan.sections():
            given = tomllib.loads(text)
            values, conflicts = _without_conflicts(given, path, planned)
            left_out += conflicts
            if not values:
                continue
            change = _change(given, path, values, replace=replace)
            if change == "replaced":
                text = without_value(text, path)
            if change in ("added", "replaced"):
                text = with_section(text, path, values, plan.comments.get(path[1], "") if path[0] == "models" else "")
            if change == "extended":
                for key in values.keys() - given[path[0]][path[1]].keys():
                    text = with_value(text, (*path, key), values[key])
            steps.append(Step(dotted_name(path), change, _masked(values)))
    except UnchangeableError as problem:
        raise CommandError(f"the configuration file has a form that cannot be changed here: {problem}") from problem
    return Edited(text, steps, left_out)


def _masked(values: Mapping[str, Any]) -> dict[str, Any]:
    return {**values, **({"env": dict.fromkeys(values["env"], MASK)} if "env" in values else {})}


def _change(given: Mapping[str, Any], path: KeyPath, value: Any, *, replace: bool) -> Change:
    present: Any = given
    for name in path:
        if not isinstance(present, dict) or name not in present:
            return "added"
        present = present[name]
    covered = present == value or (
        isinstance(value, dict) and isinstance(present, dict) and {**present, **value} == present
    )
    if covered:
        return "unchanged"
    if replace:
        return "replaced"
    both = isinstance(value, dict) and isinstance(present, dict)
    extends = both and all(key in present and present[key] == value[key] for key in value if key in {*present, *_KINDS})
    return "extended" if extends else "kept"


def _without_conflicts(
    given: Mapping[str, Any], path: KeyPath, values: dict[str, Any]
) -> tuple[dict[str, Any], list[LeftOut]]:
    """Return the values of a section without names that other sections of the file have; empty: the section is impossible."""
    kind, name = path
    others = {
        each: section for each, section in given.get(kind, {}).items() if each != name and isinstance(section, dict)
    }
    if kind == "groups":
        taken = {member: other for other, section in others.items() for member in section.get("models", [])}
        members = [member for member in values["models"] if member not in taken]
        notes = [
            LeftOut(m, f"the group {name}", f"it is in the group {taken[m]}") for m in values["models"] if m in taken
        ]
        return ({**values, "models": members} if members else {}), notes
    if kind != "models":
        return values, []
    owners = {alias: other for other, section in others.items() for alias in (other, *section.get("aliases", []))}
    if name in owners:
        return {}, [LeftOut(name, "the model", f"the file has this name for the model {owners[name]}")]
    aliases = values.get("aliases", [])
    kept = [alias for alias in aliases if alias not in owners]
    notes = [LeftOut(name, f"the alias {a}", f"it is a name of {owners[a]}") for a in aliases if a in owners]
    rest = {key: value for key, value in values.items() if key != "aliases"}
    return {**rest, **({"aliases": kept} if kept else {})}, notes


def check(file: str, found: Edited) -> str:
    """Return the warnings about an edited text; raises ``CommandError`` if it is wrong. Nothing is written."""
    return recipe_warnings(resolved_text(file, found.text))


def apply(plan: ImportPlan, config: str, server: ApiClient | None, *, replace: bool) -> Imported:
    """Write a plan into the configuration file, and have the server read it; raises ``CommandError``, see ``change_file``."""
    results: list[Edited] = []

    def edit(text: str) -> str:
        results.append(edited(text, plan, replace=replace))
        return results[-1].text

    changed = change_file(config, edit, server)
    found = results[-1]
    wanted = {name: section for name, section in plan.models.items() if _is_used(name, found.steps)}
    missing = _missing(wanted, server) if changed.answer is not None and server is not None else []
    return Imported(found.steps, found.left_out, changed, missing)


def _is_used(name: str, steps: list[Step]) -> bool:
    return any(step.setting == dotted_name(("models", name)) and step.change != "kept" for step in steps)


def _missing(wanted: Mapping[str, Mapping[str, Any]], server: ApiClient) -> list[str]:
    """Return the planned models that the server does not have, after the time in which it should have read the file."""
    expected = {name for name, section in wanted.items() if {"path", "command", "url"} & section.keys()}
    query = ModelsQuery(show_all=True)
    missing = expected

    def usable() -> set[str]:
        return {each.id for each in server.ask(list_models, query).data if each.downloaded is True}

    try:
        for found in polling.answers(usable, READY_S) if expected else ():
            missing = expected if found is None else expected - found
            if not missing:
                break
    except CommandError as problem:
        reason = f"the file is written, and whether the server has the models is unknown: {problem}"
        raise CommandError(reason, problem.exit_code, problem.status, problem.facts) from problem
    return sorted(missing)
