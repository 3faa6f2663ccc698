"""Checks of the settings of a section that need no knowledge of recipes and models, environment variables of engines among them. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from protocol.config.fields import shown_value
from protocol.config.model_settings import (
    FILE_KEYS,
    NODE_KEYS,
    OWN_ENGINE_KEYS,
    PROCESS_KEYS,
    PROGRAM_KEYS,
    REPLICA_KEYS,
    SERVER_KEYS,
    EngineSettings,
    GroupSettings,
    ModelSettings,
    RecipeDefaults,
    RemoteSettings,
)
from protocol.config.server_address import parse_address
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
_TEXTS_WITH_LINES: Final = frozenset({"args", "command", "system_prompt"})
"""Settings whose text may have several lines."""
_SPACES: Final = re.compile(r"[\t\n]")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_FIELD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_ENGINE_KINDS: Final = (*PROGRAM_KEYS, *SERVER_KEYS)
_OF_A_PROGRAM: Final = frozenset(
    {*PROGRAM_KEYS, "start_timeout", "stop_signal", "restart_on_hangup", "working_directory", "memory", "device_memory"}
)
_OF_A_SERVER: Final = frozenset({*SERVER_KEYS, "timeout"})
_GIVEN_BY_A_REMOTE: Final = (*_ENGINE_KINDS, *FILE_KEYS, "served_name", "type", "capabilities")
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
    return own_variable_problem(name, value) or _variable_refusal(name)


def own_variable_problem(name: str, value: object) -> str:
    """Return what is wrong with a variable of the operator's own program, which may get any; empty if it is valid."""
    if not _VARIABLE.fullmatch(name):
        return "expected the name of a variable: letters, digits and _"
    if not isinstance(value, str) or len(value) > 4096 or _CONTROL.search(value) or "\n" in value:
        return f"expected a text of one line and at most 4096 characters, got {shown_value(value)}"
    own = name.upper().startswith(("LEMONBUS_", "LEMONADE_"))
    return f"{name} is not given to an engine: it is lemonbus's own" if own else ""


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
    "request_defaults": _field_problem,
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


def contradictions(path: KeyPath, section: Any, given: Collection[str], remotes: Collection[str]) -> Iterator[Problem]:
    """Return settings of one section that contradict each other.

    ``given``: the keys that it has; ``remotes``: the names of the sections ``[remotes.NAME]``.
    """
    if isinstance(section, GroupSettings):
        if section.swap and section.max_loaded > 1:
            yield (*path, "max_loaded"), "expected 0 or 1, because swap allows one loaded model"
        if not (section.swap or section.exclusive or section.max_loaded):
            yield path, "expected exclusive, swap or max_loaded: without them the group changes nothing"
        return
    if isinstance(section, RemoteSettings | EngineSettings) and section.api_key_file and section.api_key_env:
        yield (*path, "api_key_env"), "expected either this or api_key_file, not both"
    if isinstance(section, RecipeDefaults):
        yield from _contradictions_of_models(path, section)
    if isinstance(section, EngineSettings):
        remote, _, of_remote = path[-1].partition("/")
        remote = remote if of_remote and remote in remotes else ""
        yield from _engine_contradictions(path, section, given, remote)
        yield from _value_problems(path, section)
        if isinstance(section, ModelSettings):
            yield from _replica_problems(path, section, elsewhere=bool(section.addresses or remote))
            yield from _file_problems(path, section)
    if isinstance(section, RemoteSettings):
        yield from _address_problems((*path, "url"), [section.url])


def _contradictions_of_models(path: KeyPath, section: RecipeDefaults) -> Iterator[Problem]:
    twice = next((name for name in section.options if name.endswith("_args")), None)
    if twice and section.args is not None:
        yield (*path, "options", twice), "expected either this option or args, which is the same"
    overridden = next((name for name in section.request_defaults if name in section.set), None)
    if overridden:
        yield (*path, "request_defaults", overridden), "expected no such field, because set overrides it"
    both = next((name for name in section.drop if name in section.set), None)
    if both:
        yield (*path, "drop"), f"{both} is also set: a field that is set need not be dropped"
    if len({is_gpu_number(device) for device in section.devices or []}) > 1:
        yield (*path, "devices"), "expected either numbers and UUIDs or names such as CUDA0, not both"
    for name in VISIBLE_DEVICES if section.devices else ():
        if name in section.env:
            yield (*path, "env", name), "expected no such variable, because devices sets it"


def _replica_problems(path: KeyPath, section: ModelSettings, *, elsewhere: bool) -> Iterator[Problem]:
    """Return keys about replicas and nodes that contradict others. ``elsewhere``: other servers run the model."""
    given = [key for key in ("replicas", "min_replicas", "max_replicas") if getattr(section, key) is not None]
    if elsewhere:
        for key in NODE_KEYS:
            if getattr(section, key):
                yield (*path, key), "expected no such key: other servers run the model"
    if given and elsewhere:
        yield (*path, given[0]), "expected no such key: other servers run the model; name several of them with urls"
    elif given[0:1] == ["replicas"] and len(given) > 1:
        yield (*path, given[1]), "expected either this or replicas, not both"
    elif section.max_replicas is not None and section.max_replicas < section.replica_range[0]:
        yield (*path, "max_replicas"), f"expected at least min_replicas, {section.replica_range[0]}"


def _file_problems(path: KeyPath, section: ModelSettings) -> Iterator[Problem]:
    """Return keys about the file of a model that contradict others."""
    kind = next((key for key in _ENGINE_KINDS if getattr(section, key)), "")
    if section.path and kind:
        yield (*path, kind), "expected either this or path, not both"
    for key in ("mmproj", "parts"):
        if getattr(section, key) and not section.path:
            yield (*path, key), "has no effect without path"


def _engine_contradictions(
    path: KeyPath, section: EngineSettings, given: Collection[str], remote: str
) -> Iterator[Problem]:
    """Return keys of a program or a server of the operator's own that contradict each other.

    ``remote``: the section ``[remotes.NAME]`` that the model comes from; empty: none.
    """
    for key in _GIVEN_BY_A_REMOTE if remote else ():
        if key in given:
            yield (*path, key), f"expected no such key: the model is one of [remotes.{remote}]"
    kinds = [key for key in _ENGINE_KINDS if key in given]
    if len(kinds) > 1:
        yield (*path, kinds[1]), f"expected either this or {kinds[0]}, not both"
    for key in filter(given.__contains__, OWN_ENGINE_KEYS):
        if key in _OF_A_PROGRAM and section.command is None:
            yield (*path, key), "has no effect without command"
        elif not (kinds or remote) or (key in _OF_A_SERVER and section.command is not None):
            yield (*path, key), f"has no effect without {'url' if key in _OF_A_SERVER else ' or '.join(_ENGINE_KINDS)}"
    for key in PROCESS_KEYS if section.addresses or remote else ():
        if key in given:
            yield (*path, key), "has no effect on a model of another server, which has no process here"


def _value_problems(path: KeyPath, section: EngineSettings) -> Iterator[Problem]:
    """Return values of these keys that cannot be, or lack what they need."""
    yield from _address_problems((*path, "urls" if section.urls else "url"), section.addresses)
    if section.command is not None and not any("{port}" in text for text in (*section.command, *section.env.values())):
        yield (*path, "command"), "expected {port} in an argument or in env: lemonbus chooses the port"
    if section.device_memory and not section.devices:
        yield (*path, "device_memory"), "has no effect without devices"


def _address_problems(path: KeyPath, urls: Iterable[str]) -> Iterator[Problem]:
    for url in urls:
        try:
            parse_address(url)
        except ValueError as problem:
            yield path, f"expected the address of a server, got {shown_value(url)}: {problem}"


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


def beyond_groups(models: Mapping[str, ModelSettings], groups: Mapping[str, GroupSettings]) -> Iterator[Problem]:
    """Return numbers of engines that a group never allows: each engine counts as a loaded model, and replicas evict none."""
    names = {alias: name for name, section in models.items() for alias in (name, *section.aliases)}
    for group, section in groups.items():
        most = 1 if section.swap else section.max_loaded
        for name in filter(None, map(names.get, section.models)) if most else ():
            key = next((key for key in REPLICA_KEYS if (getattr(models[name], key) or 0) > most), "")
            if key:
                yield (
                    ("models", name, key),
                    f"expected at most {most}: the group {shown_value(group)} allows no more engines",
                )
