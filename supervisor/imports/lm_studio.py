"""``lemonbus import lm-studio``: its models folder, ``PUBLISHER/REPO/FILE.gguf``, and what is set for single models.

LM Studio does not document the files with the settings of single models
(``.internal/user-concrete-model-default-config/PUBLISHER/REPO/FILE.gguf.json``). What is read of them is in `_LOAD` and
`_PREDICTION`; everything else in them is named as left out.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from protocol.config.import_plan import ImportPlan
from protocol.failures import LemonbusError, printable
from protocol.models import repository_files
from supervisor.imports.model_files import file_problem, read_json, refuse

_CONFIGS: Final = Path(".internal") / "user-concrete-model-default-config"
_LOAD: Final = {
    "llm.load.contextLength": "ctx_size",
    "llm.load.numParallelSessions": "slots",
    "llm.load.llama.cpuThreadPoolSize": "threads",
}
"""Key of LM Studio → load option."""
_OFFLOAD: Final = "llm.load.llama.acceleration.offloadRatio"
_PREDICTION: Final = {
    "llm.prediction.temperature": "temperature",
    "llm.prediction.topKSampling": "top_k",
    "llm.prediction.topPSampling": "top_p",
    "llm.prediction.minPSampling": "min_p",
    "llm.prediction.repeatPenalty": "repeat_penalty",
    "llm.prediction.maxPredictedTokens": "max_tokens",
    "llm.prediction.stopStrings": "stop",
}
"""Key of LM Studio → request field."""
_SYSTEM_PROMPT: Final = "llm.prediction.systemPrompt"
_DEEPEST: Final = 4


class StudioField(msgspec.Struct):
    """One setting."""

    key: str
    value: Any = None


class StudioFields(msgspec.Struct):
    """The settings of a kind."""

    fields: list[StudioField] = []


class ModelDefaults(msgspec.Struct):
    """What is set for one model."""

    operation: StudioFields = msgspec.field(default_factory=StudioFields)
    load: StudioFields = msgspec.field(default_factory=StudioFields)


class FoundModel(msgspec.Struct):
    """A model of the folder."""

    repository: str
    """``PUBLISHER/REPO``."""
    path: Path
    """The first file."""
    mmproj: Path | None = None
    defaults: ModelDefaults = msgspec.field(default_factory=ModelDefaults)
    problem: str = ""


def default_folder(_environment: Mapping[str, str]) -> Path:
    """Return where LM Studio keeps models; older versions have another place."""
    folders = [Path.home() / ".lmstudio" / "models", Path.home() / ".cache" / "lm-studio" / "models"]
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def read_models(folder: Path) -> list[FoundModel]:
    """Return the models of a folder; raises ``invalid_request`` if it is none, or has none."""
    root = folder / "models" if (folder / "models").is_dir() else folder
    if not root.is_dir():
        refuse(folder, "is not the folder of LM Studio's models")
    found = [
        model
        for publisher in _folders(root)
        for repository in _folders(publisher)
        for model in _models(repository, root)
    ]
    if not found:
        refuse(folder, "has no models in folders PUBLISHER/REPO")
    return found


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return []


def _files(folder: Path, depth: int = _DEEPEST) -> Iterator[Path]:
    for path in sorted(folder.iterdir()) if os.access(folder, os.R_OK | os.X_OK) else ():
        if path.is_dir() and depth and not path.is_symlink():
            yield from _files(path, depth - 1)
        elif path.is_file():
            yield path


def _models(repository: Path, root: Path) -> Iterator[FoundModel]:
    name = str(repository.relative_to(root))
    files = list(_files(repository))
    names = [str(path.relative_to(repository)) for path in files]
    projectors = [path for path in files if repository_files.is_projector(path.name)]
    groups = repository_files.gguf_models(names)
    if not groups and any(path.suffix == ".safetensors" for path in files):
        yield FoundModel(name, repository, problem="its weights are safetensors or MLX, which no engine here runs")
    for group in groups:
        path = repository / group[0]
        beside = [each for each in projectors if each.parent == path.parent]
        yield FoundModel(
            name,
            path,
            mmproj=beside[0] if beside else None,
            defaults=_defaults(root, path),
            problem=file_problem(path),
        )


def _defaults(root: Path, path: Path) -> ModelDefaults:
    file = root.parent / _CONFIGS / f"{path.relative_to(root)}.json"
    try:
        found: ModelDefaults = read_json(file, ModelDefaults) if file.is_file() else ModelDefaults()
    except LemonbusError:
        return ModelDefaults(load=StudioFields([StudioField(f"the file {file.name}, which is broken")]))
    return found


def plan(source: Path, models: list[FoundModel]) -> ImportPlan:
    """Return what becomes of these models.

    A model gets the name by which LM Studio's API knows it: the repository's in small letters without ``-gguf``. If a
    repository has several, each gets the name of its file instead.
    """
    found = ImportPlan(str(source))
    usable = [model for model in models if not model.problem]
    for model in models:
        if model.problem:
            found.leave(model.repository, "the model", model.problem)
    by_name: defaultdict[str, list[FoundModel]] = defaultdict(list)
    for model in usable:
        by_name[_short(model.repository)].append(model)
    for short, group in by_name.items():
        for model in group:
            name = short if len(group) == 1 else repository_files.stem(model.path.name).lower()
            if name in found.models:
                name = f"{model.repository}/{repository_files.stem(model.path.name)}"
            found.models[name] = _section(name, model, found, alone=len(group) == 1)
            found.comments[name] = f"{model.repository} of LM Studio"
    return found


def _short(repository: str) -> str:
    return repository.rpartition("/")[2].lower().removesuffix("-gguf")


def _section(name: str, model: FoundModel, found: ImportPlan, *, alone: bool) -> dict[str, Any]:
    section: dict[str, Any] = {"path": str(model.path)}
    if model.mmproj:
        section["mmproj"] = str(model.mmproj)
    if alone and model.repository != name:
        section["aliases"] = [model.repository]
    options: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    for each in (*model.defaults.load.fields, *model.defaults.operation.fields):
        value = _checked_value(each.value)
        if each.key in _LOAD and isinstance(value, int):
            options[_LOAD[each.key]] = value
        elif each.key == _OFFLOAD and value in (0, "off"):
            options["gpu_layers"] = 0
        elif each.key == _OFFLOAD and value in (1, "max"):
            pass  # what lemonbus does without the option
        elif each.key in _PREDICTION and value not in (None, []):
            fields[_PREDICTION[each.key]] = value
        elif each.key == _SYSTEM_PROMPT and isinstance(value, str):
            section |= {"system_prompt": value} if value else {}
        elif value is not None or not each.key.startswith("llm."):
            found.leave(name, printable(each.key, 100), "there is no such setting here")
    return section | {key: each for key, each in (("options", options), ("request_defaults", fields)) if each}


def _checked_value(value: Any) -> Any:
    """Return the value of a setting that may be switched off: None if it is."""
    if isinstance(value, dict) and "checked" in value:
        return value.get("value") if value["checked"] else None
    return value
