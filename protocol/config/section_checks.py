"""Checks of the settings of a section that need no knowledge of recipes and models, environment variables of engines among them. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from protocol.config.fields import shown_value
from protocol.config.model_settings import GroupSettings, ModelSettings, RecipeDefaults
from protocol.config.toml_lines import KeyPath
from protocol.models.devices import VISIBLE_DEVICES, is_gpu_number
from protocol.requests.request_rules import PROTECTED_FIELDS, field_problem

REFUSED_PREFIXES: Final = ("LD_", "DYLD_", "PYTHON", "BASH_FUNC_", "LEMONBUS_", "LEMONADE_")
"""Variables of the dynamic linker, of Python, of shells, and of lemonbus, which sets its own."""
REFUSED_NAMES: Final = frozenset(
    {
        *("IFS", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND"),
        *("GCONV_PATH", "LOCPATH", "NLSPATH", "GLIBC_TUNABLES", "MALLOC_CHECK_", "MALLOC_TRACE", "RES_OPTIONS"),
        *("PERL5LIB", "PERL5OPT", "PERLLIB", "RUBYLIB", "RUBYOPT", "NODE_OPTIONS", "NODE_PATH", "JAVA_TOOL_OPTIONS"),
        *("OPENSSL_CONF", "OPENSSL_ENGINES", "OPENSSL_MODULES", "GIO_MODULE_DIR", "GTK_MODULES", "QT_PLUGIN_PATH"),
        *("CUDA_INJECTION64_PATH", "NVTX_INJECTION32_PATH", "NVTX_INJECTION64_PATH", "HSA_TOOLS_LIB", "OPENCL_LAYERS"),
        *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
    }
)
"""Variables that make a program load or run something, and keys that no engine needs."""
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
"""All control characters except line ends and tabs."""
_TEXTS_WITH_LINES: Final = frozenset({"args", "system_prompt"})
"""Settings whose text may have several lines."""
_SPACES: Final = re.compile(r"[\t\n]")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_FIELD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
Problem = tuple[KeyPath, str]
"""What is wrong, and where."""


def _variable_refusal(name: str) -> str:
    """Return why an engine may not get a variable: it loads code or holds a key; empty if it may.

    ``PATH`` is allowed: engines get none by default, and an operator's wrapper script may need it.
    """
    upper = name.upper()
    if upper in REFUSED_NAMES or upper.startswith(REFUSED_PREFIXES):
        return f"{name} is not given to an engine: it can make a program load other code, or is lemonbus's own"
    return ""


def name_problem(name: str) -> str:
    """Return what is wrong with the name of a section; empty if it is valid."""
    good = 1 <= len(name) <= 256 and not (_CONTROL.search(name) or _SPACES.search(name))
    return "" if good else "expected a name of 1 to 256 characters"


def text_problem(key: str, value: object) -> str:
    """Return what is wrong with the texts of a setting of the right type; empty if they are valid."""
    for text in value if isinstance(value, list) else [value]:
        if not isinstance(text, str):
            continue
        if _CONTROL.search(text) or (key not in _TEXTS_WITH_LINES and _SPACES.search(text)):
            return "expected a text without control characters"
        if key == "drop" and text in PROTECTED_FIELDS:
            return _protected(text)
    return ""


def _option_problem(name: str, value: object) -> str:
    if not isinstance(value, int | float | str):
        return f"expected a number, a text, true or false, got {shown_value(value)}"
    if isinstance(value, str) and _CONTROL.search(value):
        return "expected a text without control characters"
    return "" if name else "expected the name of a load option"


def _variable_problem(name: str, value: object) -> str:
    if not _VARIABLE.fullmatch(name):
        return "expected the name of a variable: letters, digits and _"
    if not isinstance(value, str) or len(value) > 4096 or _CONTROL.search(value) or "\n" in value:
        return f"expected a text of one line and at most 4096 characters, got {shown_value(value)}"
    return _variable_refusal(name)


def _field_problem(name: str, value: object) -> str:
    if not _FIELD.fullmatch(name):
        return "expected the name of a request field: letters, digits and _"
    if name in PROTECTED_FIELDS:
        return _protected(name)
    if not _is_json(value):
        return f"expected a value that JSON also has, got {shown_value(value)}"
    problem = field_problem(name, value)
    return f"{problem}, got {shown_value(value)}" if problem.startswith("expected") else problem


ENTRY_CHECKS: Final[dict[str, Callable[[str, object], str]]] = {
    "options": _option_problem,
    "env": _variable_problem,
    "set": _field_problem,
}
"""Setting that is a table → the check of one of its entries: what is wrong, or an empty text."""


def _protected(name: str) -> str:
    return f"{name} is the client's alone: it cannot be set or dropped"


def _is_json(value: object) -> bool:
    match value:
        case dict():
            return all(map(_is_json, value.values()))
        case list():
            return all(map(_is_json, value))
        case float():
            return math.isfinite(value)
        case int():
            return -(2**63) <= value < 2**63
        case _:
            return isinstance(value, str) and not _CONTROL.search(value)


def contradictions(path: KeyPath, section: Any) -> Iterator[Problem]:
    """Return settings of one section that contradict each other."""
    if isinstance(section, GroupSettings):
        if section.swap and section.max_loaded > 1:
            yield (*path, "max_loaded"), "expected 0 or 1, because swap allows one loaded model"
        if not (section.swap or section.exclusive or section.max_loaded):
            yield path, "expected exclusive, swap or max_loaded: without them the group changes nothing"
        return
    assert isinstance(section, RecipeDefaults)  # noqa: S101 - tells the type checker
    twice = next((name for name in section.options if name.endswith("_args")), None)
    if twice and section.args is not None:
        yield (*path, "options", twice), "expected either this option or args, which is the same"
    both = next((name for name in section.drop if name in section.set), None)
    if both:
        yield (*path, "drop"), f"{both} is also set: a field that is set need not be dropped"
    if len({is_gpu_number(device) for device in section.devices or []}) > 1:
        yield (*path, "devices"), "expected either numbers and UUIDs or names such as CUDA0, not both"
    for name in VISIBLE_DEVICES if section.devices else ():
        if name in section.env:
            yield (*path, "env", name), "expected no such variable, because devices sets it"


def claimed_twice(models: Mapping[str, ModelSettings], groups: Mapping[str, GroupSettings]) -> Iterator[Problem]:
    """Return aliases that two models have, and models that are in two groups."""
    owners = {name: name for name in models}
    for name, section in models.items():
        for alias in section.aliases:
            owner = owners.setdefault(alias, name)
            if owner != name:
                yield ("models", name, "aliases"), f"{shown_value(alias)} already means the model {shown_value(owner)}"
    members: dict[str, str] = {}
    for group, members_of in groups.items():
        for model in members_of.models:
            owner = members.setdefault(model, group)
            if owner != group:
                yield ("groups", group, "models"), f"{shown_value(model)} is already in the group {shown_value(owner)}"
