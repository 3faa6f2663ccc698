"""Which files of a repository are a model: the files that a variant means, shards, projectors and quantizations. Pure.

The supervisor looks the files up, and the jobs fetch them: both must mean the same files by a variant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_SHARD: Final = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)
GENAI_CONFIG: Final = "genai_config.json"
"""A folder with this file is a model of ONNX Runtime GenAI."""
QUANTIZATION_RANKING: Final = ("Q4_K_M", "UD-Q4_K_XL", "Q8_0", "Q4_0")
"""Preferred quantizations, best first: without a variant, the first that exists is used."""
SPEECH_RANKING: Final = ("quantized", "int8", "q8", "uint8", "fp16", "model", "v1.0")
"""How the names of a speech model's files end, the preferred ones first."""
_ONNX: Final = ".onnx"
_VOICES: Final = re.compile(r"(?:[^/]+/)?voices/[^/]+\.bin|(?:[^/]+/)?voices[^/]*\.(?:bin|npz)", re.IGNORECASE)
_NOT_MODEL_FILES: Final = (".gitattributes", ".gitignore", "README.md")
_QUANTIZATION: Final = re.compile(
    r"(?:^|[-._/:])((?:UD-)?(?:IQ|TQ|Q)\d(?:_[A-Z0-9]+)*|BF16|FP?16|FP?32|MXFP4(?:_MOE)?)(?=$|[-._/])", re.IGNORECASE
)
_INTEGERS: Final = re.compile(r"(?:^|[-._/])(u?int[48])(?=$|[-._/])", re.IGNORECASE)


def is_projector(file: str) -> bool:
    """Return whether a file is a vision projector, not a model."""
    return "mmproj" in file.rsplit("/", 1)[-1].lower() and file.lower().endswith(".gguf")


def quantization(name: str) -> str:
    """Return the quantization in a variant or a file's name (``Q4_K_M``), or an empty text."""
    found = _QUANTIZATION.findall(_bare(name))
    return found[-1].upper() if found else ""


def dtype(name: str) -> str:
    """Return the type of a model's weights: ``int4`` or similar for ONNX models, else the quantization."""
    found = _INTEGERS.search(name)
    return found[1].lower() if found else quantization(name)


def shards(file: str) -> list[str]:
    """Return a file and, if it is a shard, all its siblings in order, even missing ones."""
    shard = _SHARD.fullmatch(file)
    if not shard:
        return [file]
    return [f"{shard[1]}-{number:05d}-of-{shard[3]}.gguf" for number in range(1, int(shard[3]) + 1)]


def complete_shards(file: str, files: frozenset[str]) -> list[str]:
    """Return a file and, if it is a shard, its siblings in order; nothing if one of them is missing."""
    shard = _SHARD.fullmatch(file)
    if shard and int(shard[3]) > len(files):
        return []  # a file may claim a hundred thousand shards
    names = shards(file)
    return names if shard is None or files.issuperset(names) else []


def stem(file: str) -> str:
    """Return the name of the model in a file or in a set of shards."""
    shard = _SHARD.fullmatch(file)
    return shard[1] if shard else _bare(file)


def _bare(file: str) -> str:
    return file[: -len(".gguf")] if file.lower().endswith(".gguf") else file


def gguf_models(files: list[str]) -> list[list[str]]:
    """Return the files of every GGUF model in a repository, shards in order; incomplete models are left out."""
    found = sorted(file for file in files if file.lower().endswith(".gguf") and not is_projector(file))
    known = frozenset(files)
    groups = (
        complete_shards(file, known)
        for file in found
        if (shard := _SHARD.fullmatch(file)) is None or int(shard[2]) == 1
    )
    return [group for group in groups if group]


def choose_files(files: list[str], variant: str) -> list[str]:
    """Return the files that a variant means in a repository, the one to load first; empty if there are none.

    The order of precedence: a file, a folder, a quantization at the end of a name, one anywhere in a name. Of several
    matches, the shortest name wins: ``Q4_K_M`` is not ``UD-Q4_K_M``. A folder with :data:`GENAI_CONFIG` is one model,
    with that file last. An ONNX file of a repository with voices brings all of them.
    """
    if named := _named(files, variant):
        return [*complete_shards(named, frozenset(files)), *_voices_for(named, files)]
    found = gguf_models(files)
    if variant not in ("", "*"):
        return (
            _matching_model(found, variant)
            or _genai_folder(files, variant.lower() + "/")
            or _speech_model(files, (variant,))
        )
    if not found:
        return _genai_folder(files, "") or _speech_model(files, SPEECH_RANKING)
    best = next((group for name in QUANTIZATION_RANKING if (group := _matching_model(found, name))), found[0])
    if variant == "*":
        return best + sorted(file for file in files if file.lower().endswith(".gguf") and file not in best)
    return best


def _named(files: list[str], name: str) -> str:
    """Return the file with exactly this path, else one with this path or bare name in any case, or nothing."""
    if name in files:
        return name
    lowered = name.lower()
    bare = next((file for file in sorted(files) if file.rsplit("/", 1)[-1].lower() == lowered), "")
    return next((file for file in sorted(files) if file.lower() == lowered), bare)


def _matching_model(found: list[list[str]], variant: str) -> list[str]:
    token = re.escape(variant)
    rules = (rf"(?:.*/)?{token}/[^/]+", rf"(?:.*[-._/])?{token}", rf"(?:.*[-._/])?{token}[-._/].*")
    for rule in rules:
        pattern = re.compile(rule, re.IGNORECASE | re.DOTALL)
        if groups := [group for group in found if pattern.fullmatch(stem(group[0]))]:
            return min(groups, key=lambda group: (len(stem(group[0])), group[0]))
    return []


def _genai_folder(files: list[str], folder: str) -> list[str]:
    parts = sorted(file for file in files if file.lower().startswith(folder) and file not in _NOT_MODEL_FILES)
    key = next((file for file in parts if file.lower() == folder + GENAI_CONFIG), "")
    return [*(file for file in parts if file != key), key] if key else []


def _voices_for(model: str, files: list[str]) -> list[str]:
    """Return the voices of a repository for a model of speech; none for any other file."""
    return sorted(file for file in files if _VOICES.fullmatch(file)) if model.lower().endswith(_ONNX) else []


def _speech_model(files: list[str], ranking: Sequence[str]) -> list[str]:
    """Return the ONNX file with the first of these words in its name, and the voices, if the repository has voices."""
    models = sorted((file for file in files if file.lower().endswith(_ONNX)), key=lambda file: (len(file), file))
    for word in ranking:
        pattern = re.compile(rf".*[-._/]{re.escape(word)}\.onnx", re.IGNORECASE | re.DOTALL)
        model = next((file for file in models if pattern.fullmatch(f"/{file}")), "")
        if model and (voices := _voices_for(model, files)):
            return [model, *voices]
    return []


def projector(files: list[str], name: str) -> str:
    """Return the file that ``mmproj`` names in a repository, or nothing."""
    return next((file for file in sorted(files) if name in (file, file.rsplit("/", 1)[-1])), "")
