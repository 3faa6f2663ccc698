"""``lemonbus import lemonade``: ``user_models.json``, ``recipe_options.json``, ``aliases.json`` and ``config.json``.

Its registered models are repositories of a hub, whose files are in the hub's cache. One whose file is there becomes a
section with ``path``; for another one, the command that downloads it is named.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from protocol.config.fields import SECRET_SETTINGS, setting_fields
from protocol.config.import_plan import ImportPlan
from protocol.config.settings import LOG_LEVELS
from protocol.failures import LemonbusError, printable
from protocol.models import checkpoints, repository_files
from protocol.models.checkpoints import HubCheckpoint
from protocol.models.stored_files import snapshots, walk
from supervisor.imports.model_files import read_json, refuse
from supervisor.models.catalogues import catalogue
from supervisor.models.options.load_options import setting_of
from workers.backends.registry import DESCRIPTORS, MODEL_SUFFIXES

FILES: Final = ("user_models.json", "recipe_options.json", "aliases.json", "config.json")
_PREFIXES: Final = ("user.", "builtin.", "extra.")
_INSIDE: Final = (Path(), Path(".cache/lemonade"), Path(".config/lemonade"), Path(".cache"), Path(".config"))
"""Where its files may be below a folder that is given."""
_DEFAULTS: Final[dict[str, Any]] = {
    "port": 13305,
    "host": "localhost",
    "log_level": "info",
    "global_timeout": 600,
    "max_loaded_models": 1,
    "no_broadcast": False,
    "extra_models_dir": "",
    "models_dir": "auto",
    "ctx_size": -1,
    "offline": False,
    "no_fetch_executables": False,
    "disable_model_filtering": False,
    "enable_dgpu_gtt": False,
    "rocm_channel": "stable",
    "websocket_port": "auto",
    "cloud_providers": [],
}
"""What Lemonade writes into a new ``config.json``: such a value was not chosen."""
_SAME_SETTINGS: Final = {
    "extra_models_dir": "extra_models_dir",
    "ctx_size": "ctx_size",
    "offline": "offline",
    "max_loaded_models": "max_loaded_models",
    "global_timeout": "load_timeout",
    "log_level": "log_level",
}
"""Key of ``config.json`` → setting."""
_ARGS: Final = frozenset(
    option.name for each in DESCRIPTORS.values() for option in each.options if option.kind == "args"
)
_ADDRESS: Final = "lemonbus keeps its own address; `lemonbus config set {} …` changes it"
_SWITCHES: Final = {"reasoning": "reasoning", "vision": "vision", "embeddings": "embedding", "reranking": "reranking"}
"""Label → the option of ``lemonbus pull`` that sets it."""


class UserModel(msgspec.Struct):
    """An item of ``user_models.json``, of any age."""

    recipe: str
    checkpoint: str = ""
    checkpoints: dict[str, str] = {}
    mmproj: str = ""
    labels: list[str] = []
    recipe_options: dict[str, Any] = {}
    image_defaults: dict[str, Any] = {}
    source: str = ""


class LemonadeFiles(msgspec.Struct):
    """What the files say."""

    models: dict[str, Any] = {}
    options: dict[str, dict[str, Any]] = {}
    aliases: dict[str, Any] = {}
    config: dict[str, Any] = {}
    folders: list[Path] = []
    """Where they are."""
    caches: list[Path] = []
    """Folders of hubs' caches, in which files are looked for."""


def default_folders() -> list[Path]:
    """Return where Lemonade's files are: of a user's, and of its service."""
    home, service = Path.home(), Path("/var/lib/lemonade")
    return [home / ".config" / "lemonade", home / ".cache" / "lemonade", service, service / ".cache" / "lemonade"]


def read_folder(folder: Path | None, environment: Mapping[str, str]) -> LemonadeFiles:
    """Return what the files in a folder say, or in the default ones; raises ``invalid_request`` if there are none, or one is broken."""
    folders = [folder / inner for inner in _INSIDE] if folder is not None else default_folders()
    paths = {name: path for name in FILES for each in reversed(folders) if (path := each / name).is_file()}
    if not paths:
        refuse(folders[0], f"has none of Lemonade's files: {', '.join(FILES)}")
    kinds = (dict[str, Any], dict[str, dict[str, Any]], dict[str, Any], dict[str, Any])
    read = [read_json(paths[name], kind) if name in paths else {} for name, kind in zip(FILES, kinds, strict=True)]
    found = LemonadeFiles(*read)
    own = found.config.get("models_dir", "auto")
    homes = found.folders = list(dict.fromkeys(path.parent for path in paths.values()))
    found.caches = [
        *([Path(own).expanduser()] if isinstance(own, str) and own not in ("", "auto") else []),
        *([Path(environment["HF_HUB_CACHE"])] if environment.get("HF_HUB_CACHE") else []),
        checkpoints.hub_cache(),
        *(
            home / inner
            for home in homes
            for inner in ("huggingface/hub", "../huggingface/hub", ".cache/huggingface/hub")
        ),
    ]
    return found


def plan(files: LemonadeFiles) -> ImportPlan:
    """Return what becomes of these files."""
    found = ImportPlan(" and ".join(map(str, files.folders)))
    built_in = catalogue.built_in()
    for key, item in files.models.items():
        name = _bare(key)
        try:
            section = _model(name, msgspec.convert(item, UserModel), files.caches, found)
        except (msgspec.ValidationError, LemonbusError) as problem:
            found.leave(name, "the model", printable(str(problem), 300))
            continue
        if section is not None:
            found.models[name] = section
            found.comments[name] = f"user.{name} of Lemonade"
    _add_settings(files.config, found)
    for key, options in files.options.items():
        name = key if key.startswith("extra.") and "extra_models_dir" in found.settings else _bare(key)
        given = _chosen(options)
        if name not in found.models and name not in built_in and not name.startswith("extra."):
            found.leave(name, "its options", "no model with this name is carried over, and the catalogue has none")
        elif given:
            own = found.models.setdefault(name, {})
            own["options"] = {**own.get("options", {}), **given}
            for option in sorted(given.keys() & found.settings.keys() & _ARGS):
                found.leave(name, f"{option} of config.json", "a model's own arguments replace those for all models")
    _add_aliases(files.aliases, found, set(built_in))
    return found


def _bare(name: str) -> str:
    return next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), name)


# Models


def _model(name: str, item: UserModel, caches: list[Path], found: ImportPlan) -> dict[str, Any] | None:
    """Return the section of a registered model, None if it is not carried over."""
    descriptor = DESCRIPTORS.get(item.recipe)
    if descriptor is None or descriptor.section_keys:
        found.leave(name, "the model", f"there is no recipe {printable(item.recipe, 60)} here")
        return None
    checkpoint = item.checkpoint or item.checkpoints.get("main", "")
    mmproj = item.mmproj or item.checkpoints.get("mmproj", "").rpartition(":")[2]
    others = sorted(set(item.checkpoints) - catalogue.checkpoint_roles(item.recipe))
    file, projector = (None, None) if others else _files(checkpoint, mmproj, caches)
    parts = {part: _files(item.checkpoints[part], "", caches)[0] for part in _parts(item)}
    if file is None or (mmproj and projector is None) or None in parts.values():
        what = f"it has {' and '.join(others)} besides" if others else "its files are not in a cache of this machine"
        found.leave(name, "the model", f"{what}; `{_pull(name, item, checkpoint, mmproj)}` downloads it")
        return None
    section: dict[str, Any] = {"path": str(file), "aliases": [f"user.{name}"]}
    if projector:
        section["mmproj"] = str(projector)
    if parts:
        section["parts"] = {part: str(path) for part, path in parts.items()}
    options = _chosen({**item.image_defaults, **item.recipe_options})
    if options:
        section["options"] = options
    labels = [label for label in item.labels if label not in ("custom", "vision", "embeddings", "reranking")]
    if labels:
        found.leave(
            name, f"labels {', '.join(map(printable, labels))}", "lemonbus labels a model by what its file says"
        )
    return section


def _parts(item: UserModel) -> list[str]:
    return [part for part in DESCRIPTORS[item.recipe].parts if part in item.checkpoints]


def _chosen(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that say something."""
    return {name: value for name, value in options.items() if value not in (None, "", "auto")}


def _files(checkpoint: str, mmproj: str, caches: list[Path]) -> tuple[Path | None, Path | None]:
    """Return the file of a checkpoint in a cache, and its projector; None: it is not there."""
    parsed = checkpoints.parse(checkpoint)
    if not isinstance(parsed, HubCheckpoint):
        return None, None
    for snapshot in _snapshots(parsed.folder, caches):
        names = list(walk(snapshot))
        chosen = repository_files.choose_files(names, parsed.variant)
        if chosen and chosen[0].lower().endswith(MODEL_SUFFIXES) and (snapshot / chosen[0]).is_file():
            projector = repository_files.projector(names, mmproj) if mmproj else ""
            return snapshot / chosen[0], snapshot / projector if projector else None
    return None, None


def _snapshots(folder: str, caches: list[Path]) -> Iterator[Path]:
    for cache in caches:
        yield from snapshots(Path(os.path.normpath(cache)) / folder)


def _pull(name: str, item: UserModel, checkpoint: str, mmproj: str) -> str:
    words = ["lemonbus", "pull", f"user.{name}"]
    for option, value in (("checkpoint", checkpoint), ("recipe", item.recipe), ("mmproj", mmproj)):
        words += [f"--{option}", value] if value else []
    words += [word for part in _parts(item) for word in ("--part", f"{part}={item.checkpoints[part]}")]
    words += [f"--{switch}" for label, switch in _SWITCHES.items() if label in item.labels]
    return printable(shlex.join(words), 400)


def _add_aliases(given: Mapping[str, Any], found: ImportPlan, built_in: set[str]) -> None:
    inner = given.get("aliases")
    aliases = inner if isinstance(inner, dict) else given
    for alias, target in aliases.items():
        name = _bare(target) if isinstance(target, str) else ""
        if name in found.models or name in built_in:
            names = found.models.setdefault(name, {}).setdefault("aliases", [])
            names += [alias] if alias not in (name, *names) else []
        else:
            found.leave(
                "", f"the alias {printable(alias, 80)}", f"no model {printable(name or str(target), 80)} is here"
            )


# config.json


def _add_settings(config: Mapping[str, Any], found: ImportPlan) -> None:
    sections = {name.replace("-", ""): name for name in DESCRIPTORS}
    for key, value in config.items():
        if key in ("_generated", "config_version", "models_dir") or (key in _DEFAULTS and value == _DEFAULTS[key]):
            continue
        if key in sections and isinstance(value, dict):
            _add_recipe(sections[key], key, value, found)
        elif key in ("port", "host"):
            found.leave("", f"{key} {value}", _ADDRESS.format(key))
        elif key == "cloud_providers" and isinstance(value, list):
            _add_providers(value, found)
        elif key == "log_level" and value not in LOG_LEVELS:
            found.leave("", f"log_level {printable(str(value), 40)}", f"the levels here are {', '.join(LOG_LEVELS)}")
        elif key == "max_loaded_models" and value == -1:
            found.settings[key] = 10_000
        elif key in _SAME_SETTINGS or key in setting_fields().keys() - SECRET_SETTINGS:
            found.settings[_SAME_SETTINGS.get(key, key)] = value
        elif not isinstance(value, dict) or value.get("enabled"):
            found.leave("", printable(key, 80), "there is no such setting here")


def _add_recipe(recipe: str, key: str, values: Mapping[str, Any], found: ImportPlan) -> None:
    for name, value in values.items():
        setting = setting_of(f"{recipe}_{name}")
        if value in ("", "auto", "builtin", None):
            continue
        if name in ("backend", "args") and setting:
            found.settings[setting] = value
        elif name not in ("prefer_system", "steps", "cfg_scale", "width", "height") or value is True:
            found.leave("", printable(f"{key}.{name}", 80), "there is no such setting here")


def _add_providers(providers: list[Any], found: ImportPlan) -> None:
    for each in providers:
        name, url = (each.get("name"), each.get("base_url")) if isinstance(each, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(url, str):
            found.leave("", "a cloud provider", "it has no name and base_url")
            continue
        found.remotes[name] = {"url": url, "api_key_env": f"LEMONADE_{name.upper().replace('-', '_')}_API_KEY"}
        found.leave(
            "",
            f"the key of {printable(name, 60)}",
            "lemonbus reads it from the same variable, which it must be started with",
        )
