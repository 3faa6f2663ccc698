"""The files that a spec names, and the same spec with the paths that these files have on another node. Pure.

A spec has the paths of the head. A worker elsewhere gets the paths of its node beside it, and translates the spec only for its
engine. So whatever compares, keeps or measures specs knows one path of a model, that of the head.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Final

from msgspec import structs

from protocol.models.recipes import ModelSpec

ARGUMENTS: Final = "_args"
"""How the names of options end that are an engine's arguments."""
_SCALE: Final = re.compile(r":[-+.\deE]*")
"""What may follow an adapter's file."""


def named_paths(spec: ModelSpec) -> list[str]:
    """Return the absolute paths in a spec: its model, a file or a folder, its projector, its parts, and those in its arguments.

    A path in arguments may also be of something that is not a file, or does not exist.
    """
    found = [path for path in (spec.path, spec.mmproj, *spec.parts.values()) if path.startswith("/")]
    for text in _arguments(spec).values():
        found += [path for word in shlex.split(text) for part in _parts(word) if (path := _path(part))]
    return list(dict.fromkeys(found))


def localized(spec: ModelSpec, paths: Mapping[str, str]) -> ModelSpec:
    """Return a spec with other paths. ``paths``: a path of the head → the same file elsewhere; others stay as they are."""
    if not paths:
        return spec
    options = {name: _localized_arguments(text, paths) for name, text in _arguments(spec).items()}
    return structs.replace(
        spec,
        path=_localized_path(spec.path, paths),
        mmproj=paths.get(spec.mmproj, spec.mmproj),
        parts={part: paths.get(path, path) for part, path in spec.parts.items()},
        options={**spec.options, **options},
    )


def _arguments(spec: ModelSpec) -> dict[str, str]:
    return {
        name: value
        for name, value in spec.options.items()
        if name.endswith(ARGUMENTS) and isinstance(value, str) and "/" in value
    }


def _parts(word: str) -> list[str]:
    """Return the parts of an argument that may each be a path: its value, or what commas separate there."""
    return word[word.find("=") + 1 :].split(",") if word.startswith("-") else word.split(",")


def _path(part: str) -> str:
    """Return the absolute path in a part of an argument, without the scale after it; empty if there is none."""
    if not part.startswith("/"):
        return ""
    path, colon, scale = part.rpartition(":")
    return path if colon and _SCALE.fullmatch(colon + scale) else part


def _localized_arguments(text: str, paths: Mapping[str, str]) -> str:
    words = shlex.split(text)
    changed = [_localized_word(word, paths) for word in words]
    return text if changed == words else shlex.join(changed)


def _localized_word(word: str, paths: Mapping[str, str]) -> str:
    parts = _parts(word)
    flag = word[: len(word) - len(",".join(parts))]
    return flag + ",".join(
        paths.get(path, path) + part[len(path) :] if (path := _path(part)) else part for part in parts
    )


def _localized_path(path: str, paths: Mapping[str, str]) -> str:
    """Return the path of a model elsewhere. A folder is where its files are: they have the same names below it."""
    if path in paths:
        return paths[path]
    for file, elsewhere in paths.items():
        if path and file.startswith(f"{path}/") and elsewhere.endswith(file[len(path) :]):
            return elsewhere[: -len(file) + len(path)]
    return path
