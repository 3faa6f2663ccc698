"""``lemonbus import ollama``: what becomes of the models of Ollama's store. Pure, except that it looks into model files.

A model becomes a section with ``path``. Tags of the same files and parameters are one model with several names. A
parameter is what a request has unless it sends its own, so it becomes a request's default.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from protocol.config.import_plan import ImportPlan
from protocol.failures import printable
from protocol.models.recipes import DEFAULT_RECIPE
from protocol.requests.request_rules import FIELD_KINDS
from supervisor.imports.model_files import has_vision_inside
from supervisor.imports.ollama_store import OllamaModel
from workers.backends.registry import DESCRIPTORS

_OPTIONS: Final = {"num_ctx": "ctx_size", "num_thread": "threads", "num_gpu": "gpu_layers"}
"""Parameter of Ollama → load option."""
_FIELDS: Final = {"num_predict": "max_tokens", "num_keep": "n_keep"}
"""Parameter of Ollama → request field, where their names differ."""
_OTHER_LAYERS: Final = {
    "template": "a template in Go's language; the engine uses the one in the model's file",
    "prompt": "a template in Go's language; the engine uses the one in the model's file",
    "messages": "no setting adds example messages to chats",
    "draft": "its draft model is not used",
    "license": "",
}
"""Kind of a layer → why it is left out; empty: it is only a remark in the file."""
_MOST_PROMPT: Final = 65_536


def plan(source: Path, stored: Iterable[OllamaModel]) -> ImportPlan:
    """Return what becomes of the models of a store."""
    found = ImportPlan(str(source))
    known: dict[str, str] = {}
    for model in sorted(stored, key=lambda each: (len(each.name), each.name)):
        if model.problem:
            found.leave(model.name, "the model", model.problem)
            continue
        section = _section(model, found)
        if section is None:
            continue
        same = known.setdefault(repr(section), model.name)
        if same != model.name:
            found.models[same].setdefault("aliases", []).append(model.name)
            found.left_out = [note for note in found.left_out if note.model != model.name]
            continue
        found.models[model.name] = section
        licence = f"; licence: {model.licence}" if model.licence else ""
        found.comments[model.name] = f"{model.name} of Ollama's store{licence}"
    return found


def _section(model: OllamaModel, found: ImportPlan) -> dict[str, Any] | None:
    weights = model.files.get("model", [])
    if len(weights) != 1:
        found.leave(model.name, "the model", _unusable(model, len(weights)))
        return None
    section: dict[str, Any] = {"path": str(weights[0])}
    projectors = model.files.get("projector", [])
    if projectors:
        section["mmproj"] = str(projectors[0])
    elif has_vision_inside(weights[0]):
        why = "its vision tower is inside the model's file, and the engine reads one only from a projector of its own"
        found.leave(model.name, "pictures", why)
    if len(projectors) > 1:
        found.leave(model.name, "all projectors but the first", "a model has one")
    _add_adapters(model, section, found)
    _add_parameters(model, section, found)
    if len(model.system) > _MOST_PROMPT:
        found.leave(model.name, "the system prompt", f"it has more than {_MOST_PROMPT} characters")
    elif model.system:
        section["system_prompt"] = model.system
    for kind in model.others:
        why = _OTHER_LAYERS.get(kind, "lemonbus does not know this kind of layer")
        if why:
            found.leave(model.name, printable(kind, 80), why)
    return section


def _unusable(model: OllamaModel, files: int) -> str:
    if files:
        return f"its weights are in {files} files, which llama.cpp can only find by their names"
    if "tensor" in model.others:
        return "its weights are safetensors of Ollama's own engine, not a GGUF file"
    return "it has no weights here: Ollama runs it elsewhere"


def _add_adapters(model: OllamaModel, section: dict[str, Any], found: ImportPlan) -> None:
    words: list[str] = []
    for path in model.files.get("adapter", []):
        if "," in str(path):
            found.leave(model.name, "an adapter", "the engine takes no path with a comma")
        else:
            words += [DESCRIPTORS[DEFAULT_RECIPE].adapter_flag, str(path)]
    if words:
        section["args"] = shlex.join(words)


def _add_parameters(model: OllamaModel, section: dict[str, Any], found: ImportPlan) -> None:
    options: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    for name, value in sorted(model.params.items()):
        if name in _OPTIONS and isinstance(value, int) and value >= 0:
            options[_OPTIONS[name]] = value
        elif name in _OPTIONS:
            found.leave(model.name, f"{printable(name)} {value}", "lemonbus decides this itself")
        elif name == "num_predict" and isinstance(value, int) and value < 0:
            found.leave(
                model.name, f"num_predict {value}", "an answer without a limit is what OpenAI's routes give anyway"
            )
        elif (field := _FIELDS.get(name, name)) in FIELD_KINDS:
            fields[field] = value
        else:
            found.leave(model.name, f"the parameter {printable(name, 80)}", "lemonbus has no such setting")
    section |= {key: values for key, values in (("options", options), ("request_defaults", fields)) if values}
