"""What a model's files say about it, for people: architecture, parameters, context, chat template. Only reads files."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any, Final

import msgspec

from protocol.failures import DECODE_ERRORS
from protocol.messages.model_details import FileFacts
from protocol.models.repository_files import GENAI_CONFIG
from workers.files import gguf
from workers.files.gguf import MAX_CONTEXT, ArrayLength
from workers.files.voices import Voices

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_MAX_CONFIG_BYTES: Final = 32 * 1024 * 1024
_LONGEST_TEXT: Final = 4096
"""Characters of a header value that is shown; longer ones are templates and licences."""
# fmt: off
_QUANTIZATIONS: Final = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 32: "BF16",
}
# fmt: on
"""``general.file_type`` in llama.cpp's numbers → the name of the quantization."""
_TEMPLATE: Final = "tokenizer.chat_template"


def describe(path: str) -> FileFacts:
    """Return what a file or folder says; raises whatever reading it raises.

    A path that does not exist yields no facts.
    """
    place = Path(path)
    if place.is_dir():
        return _genai_folder(place)
    if not place.is_file():
        return FileFacts()
    if path.lower().endswith(".gguf"):
        return _gguf_model(place)
    voices = Voices(place).names if place.suffix.lower() == ".onnx" else []
    return FileFacts(format=place.suffix.removeprefix("."), digest=digest(place), voices=voices)


def digest(path: Path) -> str:
    """Return 64 digits for this version of a file: the sha256 if the hub's cache names it by that, else a digest of name, size and time."""
    real = os.path.realpath(path)
    name = real.rpartition("/")[2]
    if _SHA256.fullmatch(name):
        return name
    facts = Path(real).stat()
    return hashlib.sha256(f"{path.name}:{facts.st_size}:{facts.st_mtime_ns}".encode()).hexdigest()


def _gguf_model(path: Path) -> FileFacts:
    header = gguf.read_metadata(path)
    parameters = sum(gguf.read(part).parameters for part in gguf.parts_of(path) if part.is_file())
    architecture = str(header.get("general.architecture", ""))
    vocabulary = header.get("tokenizer.ggml.tokens")
    template = header.get(_TEMPLATE, "")
    return FileFacts(
        format="gguf",
        architecture=architecture,
        parameters=parameters,
        context_length=_number(header.get(f"{architecture}.context_length")),
        layers=_number(header.get(f"{architecture}.block_count")),
        vocabulary=vocabulary.items
        if isinstance(vocabulary, ArrayLength)
        else _number(header.get(f"{architecture}.vocab_size")),
        quantization=_QUANTIZATIONS.get(_number(header.get("general.file_type", -1)), ""),
        template=template if isinstance(template, str) else "",
        digest=digest(path),
        metadata={key: value for key, value in header.items() if _shown(key, value)},  # type: ignore[misc]
    )


def _shown(key: str, value: Any) -> bool:
    if isinstance(value, ArrayLength) or key.startswith(_TEMPLATE):
        return False
    return not isinstance(value, str) or len(value) <= _LONGEST_TEXT


def _genai_folder(folder: Path) -> FileFacts:
    config = _json(folder / GENAI_CONFIG)
    model = config.get("model")
    model = model if isinstance(model, dict) else {}
    decoder = model.get("decoder")
    decoder = decoder if isinstance(decoder, dict) else {}
    return FileFacts(
        format="onnx",
        architecture=str(model.get("type", "")),
        context_length=_number(model.get("context_length")),
        layers=_number(decoder.get("num_hidden_layers")),
        vocabulary=_number(model.get("vocab_size")),
        template=_genai_template(folder),
        digest=digest(folder / GENAI_CONFIG),
    )


def _genai_template(folder: Path) -> str:
    try:
        return (folder / "chat_template.jinja").read_text("utf-8", "replace")
    except OSError:
        template = _json(folder / "tokenizer_config.json").get("chat_template", "")
        return template if isinstance(template, str) else ""


def _json(path: Path) -> dict[str, Any]:
    """Return the object in a file, an empty one if there is none."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_MAX_CONFIG_BYTES), type=dict[str, Any])
    except (OSError, *DECODE_ERRORS):
        return {}


def _number(value: object) -> int:
    """Return a number; 0 for anything else, and for what no model has."""
    return value if isinstance(value, int) and not isinstance(value, bool) and -1 <= value < MAX_CONTEXT else 0
