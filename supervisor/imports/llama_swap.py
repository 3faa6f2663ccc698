"""``lemonbus import llama-swap``: what becomes of its YAML configuration. Pure, except that programs and files are looked for.

A llama-server with a model file becomes a section with ``path``, whose engine is the same program (backend ``system``).
Any other command becomes a program of the operator's own, with ``{port}`` where llama-swap puts its port.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import yaml  # type: ignore[import-untyped]
from msgspec import Meta

from protocol import small_files
from protocol.config.import_plan import ImportPlan
from protocol.failures import printable
from protocol.requests.request_rules import PROTECTED_FIELDS
from supervisor.imports.llama_swap_commands import Commands
from supervisor.imports.llama_swap_macros import MacroError, Macros
from supervisor.imports.model_files import refuse

_NOT_CARRIED: Final = {
    "cmdStop": "lemonbus stops a program with a signal (stop_signal)",
    "name": "lemonbus lists models under their names only",
    "description": "lemonbus lists models under their names only",
    "metadata": "lemonbus adds nothing to its list of models",
    "unlisted": "lemonbus lists every model; a key can be limited to some of them",
    "timeouts": "lemonbus watches the progress of an engine instead (silence)",
    "sendLoadingState": "lemonbus shows the state of a load in the headers and the page",
    "unloadTimeout": "lemonbus kills a program 10 seconds after the signal",
}
"""Key of a model → why it is left out."""
_SERVER: Final = {
    "matrix": "sets of models that may run together; see [groups] and max_loaded_models",
    "profiles": "lemonbus has no names that change while it runs; see aliases",
    "apiKeys": "no section has keys of clients; `lemonbus keys add` makes one",
    "store": "lemonbus counts usage itself (`lemonbus usage`)",
    "upstream": "lemonbus passes no other paths on to an engine",
    "unloadTimeout": "lemonbus kills a program 10 seconds after the signal",
    "sendLoadingState": "lemonbus shows the state of a load in the headers and the page",
}
"""Key of the file → why it is left out. Keys that mean nothing here, such as startPort, are not mentioned."""
_SILENT: Final = frozenset(
    {"startPort", "macros", "logTimeFormat", "logToStdout", "metricsMaxInMemory", "captureBuffer", "performance", "ui"}
    | {"includeAliasesInList"}
)
_UNGROUPED: Final = (
    "llama-swap runs one of these at a time; lemonbus keeps as many as fit into the memory, at most max_loaded_models"
)

_LOG_LEVELS: Final = {"debug": "debug", "warn": "warning", "error": "error"}
"""Level of llama-swap → of lemonbus. Without it, both have the level info."""
Names = list[str | dict[str, Any]]


class Filters(msgspec.Struct, rename="camel"):
    """Changes to requests."""

    strip_params: str = ""
    set_params: dict[str, Any] = {}
    set_params_by_id: dict[str, dict[str, Any]] = msgspec.field(default={}, name="setParamsByID")


class SwapModel(msgspec.Struct, rename="camel"):
    """A model of llama-swap."""

    cmd: str
    aliases: Names = []
    env: list[str] = []
    proxy: str = ""
    check_endpoint: str = "/health"
    ttl: float | None = None
    use_model_name: str = ""
    filters: Filters = msgspec.field(default_factory=Filters)
    concurrency_limit: Annotated[int, Meta(ge=0)] = 0
    macros: dict[str, Any] = {}


class SwapGroup(msgspec.Struct):
    """Models that share the machine."""

    members: list[str]
    swap: bool = True
    exclusive: bool = True
    persistent: bool = False


class SwapPeer(msgspec.Struct, rename="camel"):
    """Another server and its models."""

    proxy: str
    models: list[str]
    api_key: str = ""


class SwapConfig(msgspec.Struct, rename="camel"):
    """What is carried over of the file."""

    models: dict[str, dict[str, Any]]
    macros: dict[str, Any] = {}
    groups: dict[str, SwapGroup] = {}
    peers: dict[str, SwapPeer] = {}
    hooks: dict[str, Any] = {}
    health_check_timeout: float = 0
    global_ttl: float = msgspec.field(default=0, name="globalTTL")
    log_level: str = "info"


def read(file: Path) -> dict[str, Any]:
    """Return what the file says; raises ``invalid_request`` if it cannot be read or is not a mapping."""
    try:
        found = yaml.safe_load(small_files.read_small_file(file))
    except OSError as problem:
        refuse(file, problem.strerror or str(problem))
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        refuse(file, f"it is not YAML: {printable(' '.join(str(problem).split()), 300)}")
    if not isinstance(found, dict):
        refuse(file, "it is not a configuration of llama-swap: expected models")
    return found


def plan(file: Path, given: dict[str, Any], environment: Mapping[str, str]) -> ImportPlan:
    """Return what becomes of a configuration; raises ``invalid_request`` for one that llama-swap would not accept."""
    try:
        config = msgspec.convert(given, SwapConfig)
    except msgspec.ValidationError as problem:
        refuse(file, f"it is not a configuration of llama-swap: {printable(str(problem), 300)}")
    found = ImportPlan(str(file))
    for key in given:
        if key in _SERVER or (key not in {f.encode_name for f in msgspec.structs.fields(SwapConfig)} | _SILENT):
            found.leave("", printable(key, 80), _SERVER.get(key, "lemonbus does not know this key"))
    models = {
        name: model for name, each in config.models.items() if (model := _model(name, each, config, environment, found))
    }
    commands = Commands(file.parent, config.health_check_timeout, found)
    for name, section in commands.sections(models).items():
        _add_common(name, models[name], section, config, found)
        found.models[name] = section
    if config.log_level in _LOG_LEVELS:
        found.settings["log_level"] = _LOG_LEVELS[config.log_level]
    _add_groups(config, found)
    _add_preload(config, found)
    for name, peer in config.peers.items():
        _add_peer(name, peer, found)
    return found


def _model(
    name: str, given: dict[str, Any], config: SwapConfig, environment: Mapping[str, str], found: ImportPlan
) -> SwapModel | None:
    """Return a model with its macros replaced, None if that is impossible."""
    own = given.get("macros")
    macros = Macros({**config.macros, **(own if isinstance(own, dict) else {})}, name, environment)
    try:
        model = msgspec.convert(
            macros.replaced({key: value for key, value in given.items() if key != "macros"}), SwapModel
        )
    except (MacroError, msgspec.ValidationError) as problem:
        found.leave(name, "the model", printable(str(problem), 300))
        return None
    for variable in macros.used_variables:
        found.leave(name, f"${{env.{variable}}}", "the file has its present value instead of the variable")
    known = {field.encode_name for field in msgspec.structs.fields(SwapModel)}
    for key in given:
        if key not in known and key != "capabilities":
            found.leave(name, printable(key, 80), _NOT_CARRIED.get(key, "lemonbus does not know this key"))
    return model


def _add_common(name: str, model: SwapModel, section: dict[str, Any], config: SwapConfig, found: ImportPlan) -> None:
    """Add what sections of both kinds have."""
    aliases = [each if isinstance(each, str) else str(each.get("id", "")) for each in model.aliases]
    aliases = list(dict.fromkeys(each for each in aliases if each and each != name))
    if aliases:
        section["aliases"] = aliases
    ttl = (config.global_ttl or None) if model.ttl is None or model.ttl < 0 else model.ttl
    if ttl is not None:
        section["ttl"] = ttl
    if model.concurrency_limit and "path" in section:
        section["concurrency"] = model.concurrency_limit
        found.leave(name, "429 beyond concurrencyLimit", "requests beyond concurrency wait, as many as queue allows")
    env = dict(each.split("=", 1) for each in model.env if "=" in each)
    if env:
        section["env"] = env
    filters = model.filters
    given = {key: value for key, value in filters.set_params.items() if key not in PROTECTED_FIELDS}
    dropped = [each.strip() for each in filters.strip_params.split(",")]
    dropped = [each for each in dropped if each and each not in {*given, *PROTECTED_FIELDS}]
    section |= {key: values for key, values in (("set", given), ("drop", dropped)) if values}
    if filters.set_params_by_id:
        why = "lemonbus changes the requests of a model in the same way under all its names"
        found.leave(name, "filters.setParamsByID", why)


def _add_groups(config: SwapConfig, found: ImportPlan) -> None:
    grouped = {member for group in config.groups.values() for member in group.members}
    for name, group in config.groups.items():
        members = [each for each in group.members if each in found.models]
        if group.persistent and not group.swap:
            for member in members:
                found.models[member]["pin"] = True
        elif group.persistent:
            found.leave("", f"groups.{name}.persistent", "a model that leaves for others of its group cannot be pinned")
        rules = {key: True for key, value in (("swap", group.swap), ("exclusive", group.exclusive)) if value}
        if members and rules:
            found.groups[name] = {"models": members, **rules}
    alone = [name for name in found.models if name not in grouped]
    if len(alone) > 1:
        found.leave("", f"the group of {', '.join(alone)}", _UNGROUPED)


def _add_preload(config: SwapConfig, found: ImportPlan) -> None:
    startup = config.hooks.get("on_startup")
    preload = startup.get("preload") if isinstance(startup, dict) else None
    for name in preload if isinstance(preload, list) else []:
        if name in found.models:
            found.models[name]["preload"] = True


def _add_peer(name: str, peer: SwapPeer, found: ImportPlan) -> None:
    key = peer.api_key.removeprefix("${env.").removesuffix("}") if peer.api_key.startswith("${env.") else ""
    if peer.api_key and not key:
        found.leave("", f"peers.{name}.apiKey", "write it into a file, and set api_key_file of the peer's models")
    for model in peer.models:
        section = {"url": f"{peer.proxy.rstrip('/')}/v1", "served_name": model}
        found.models.setdefault(model, {**section, **({"api_key_env": key} if key else {})})
