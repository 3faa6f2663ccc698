"""Puts names that the server knows into random requests, because otherwise nearly all would end with "model not found"."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any, Final

from tests.compatibility.backend_installation import VULKAN
from tests.support.audio import wav
from tests.support.images import png

if TYPE_CHECKING:
    from schemathesis import Case

MODELS: Final = ("tiny-chat", "tiny-embed", "tiny-infill", "tiny-kokoro", "tiny-rerank", "tiny-think", "tiny-whisper")
"""The tiny models that the server needs."""
EXAMPLE_MODEL: Final = "SmolLM2-135M-Instruct-GGUF"
HUB_MODELS: Final = ("Qwen3-0.6B-GGUF", "llama3.2-1b")
"""Models of the catalogue that the hub has, so that they can be downloaded and deleted."""
_BY_PATH: Final = (
    (re.compile("embed"), "extra.tiny-embed"),
    (re.compile("rerank"), "extra.tiny-rerank"),
    (re.compile("speech|tts"), "extra.tiny-kokoro"),
    (re.compile("audio"), "extra.tiny-whisper"),
    (re.compile("infill"), "extra.tiny-infill"),
)
_CHANGED: Final = re.compile(r"/(delete|pull|copy|defaults)\b")
_NAME_FIELDS: Final = ("model", "model_id", "model_name", "alias", "name", "source")
RECORDING: Final = wav(0.3)
PICTURE: Final = png(64, 64)
_VALID: Final = {"filename": "fuzz.bin", "destination": "fuzz-copy", "voice": "af_heart"}
"""Fields with rules that the document cannot express."""
_KNOWN_SHARE: Final = 0.8
_LIMITS: Final = {"max_tokens": 8, "max_completion_tokens": 8, "max_output_tokens": 8, "n_predict": 8, "num_predict": 8}
_FEW: Final = {"n": 2, "n_cmpl": 2}


def with_known_names(case: Case, chance: random.Random, *, valid: bool) -> None:
    """Change most cases so that they name a model that is here, and limit the length of every answer.

    ``valid``: the case follows the document, and must stay valid.
    """
    name = model_of(case.operation.path, case.method, chance)
    known = chance.random() < _KNOWN_SHARE
    if isinstance(case.body, dict):
        # The examples' model would be downloaded from the real package index.
        if known or EXAMPLE_MODEL in case.body.values():
            _name_in(case, name, valid=valid)
        _shorten(case.body)
        if isinstance(case.body.get("options"), dict):
            _shorten(case.body["options"])
    if known and isinstance(case.query, dict):
        for field in ("model", "cache_dir", "after_id", "before_id"):
            case.query.pop(field, None)
    if known and isinstance(case.path_parameters, dict):
        known_values = {"model_id": name, "name": name, "slot_id": 0, "voice": "af_heart"}
        case.path_parameters.update({key: value for key, value in known_values.items() if key in case.path_parameters})


def _name_in(case: Case, name: str, *, valid: bool) -> None:
    """Put the name, and readable files, into a body."""
    body: dict[str, Any] = case.body
    schema = case.operation.schema.raw_schema["components"]["schemas"]
    declared = schema.get(_body_type(case), {}).get("properties", {})
    names = [field for field in _NAME_FIELDS if field in body or (valid and field in declared)]
    body.update(dict.fromkeys(names, name))
    if "recipe" in body and "checkpoint" in declared:
        body.update(model_name="user.fuzz", recipe="llamacpp", checkpoint="shop/Ours-GGUF:Q4_K_M")
        body.pop("model", None)
    if "backend" in body:
        body.update(VULKAN)
    if valid:
        body.update({field: value for field, value in _VALID.items() if field in declared})
    for field, content in (("file", RECORDING), ("image", PICTURE), ("mask", PICTURE)):
        if field in body:
            body[field] = content


def _body_type(case: Case) -> str:
    """Return the name of the declared type of a body."""
    found = re.search(r"#/components/schemas/(\w+)", str(case.operation.definition.raw.get("requestBody")))
    return found[1] if found else ""


def model_of(path: str, method: str, chance: random.Random) -> str:
    """Return a model that the server has and that serves the path."""
    if method == "DELETE" or _CHANGED.search(path):
        return chance.choice(HUB_MODELS)
    for pattern, name in _BY_PATH:
        if pattern.search(path):
            return name
    return chance.choice(["extra.tiny-chat", "extra.tiny-think"])


def _shorten(fields: dict[str, Any]) -> None:
    for field, most in _LIMITS.items():
        value = fields.get(field)
        if isinstance(value, int) and not isinstance(value, bool) and (value > most or value < 0):
            fields[field] = most
    for field, most in _FEW.items():
        value = fields.get(field)
        if isinstance(value, int) and value > most:
            fields[field] = most
