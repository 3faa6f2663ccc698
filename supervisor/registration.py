"""Registering a model: what may be registered, and writing it down once its files are there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

from protocol import logs
from protocol.checkpoints import HubPlace, TagPlace, parse, printable
from protocol.failures import Code, Failure, LemonbusError, invalid
from protocol.shelf import Registration
from supervisor import catalogue, files
from supervisor.catalogue import LONGEST_NAME, Entry
from supervisor.house import House
from supervisor.names import LATEST
from supervisor.registry import PREFIX
from workers.backends import DESCRIPTORS

CUSTOM: Final = "custom"
"""The label of what users registered."""
_PARTS: Final = re.compile(r"[/\\]|^\.*$|^\s|\s$")
_LOADED: Final = {"llamacpp": ("GGUF file", ".gguf"), "whispercpp": ("ggml file", ".bin", ".gguf")}
"""Recipe → what it loads, in words, and how its name may end."""
_FOLDERS: Final = ("oga-cpu", "oga-hybrid", "oga-npu", "ryzenai-llm")
"""Recipes that load a folder."""

log = logs.get()


def wanted(name: str, said: Registration) -> Entry:
    """Return the entry that somebody wants; raises ``invalid_request`` naming what is wrong."""
    check_name(name)
    if said.recipe not in DESCRIPTORS:
        known = ", ".join(DESCRIPTORS)
        raise invalid(f"there is no recipe {printable(said.recipe)!r}; there are: {known}", "recipe")
    place = _place(said)
    if said.mmproj and (said.recipe != "llamacpp" or not isinstance(place, HubPlace)):
        raise invalid(f"a model of recipe {said.recipe} has no `mmproj`", "mmproj")
    if ".." in said.mmproj.split("/") or said.mmproj.startswith("/") or "\\" in said.mmproj:
        raise invalid(f"{printable(said.mmproj)!r} is no file of a repository", "mmproj")
    try:
        return catalogue.entry(name, item_of(said))
    except ValueError as problem:
        raise invalid(printable(str(problem), 300), "checkpoint") from None


def check_name(name: str) -> None:
    """Raise ``invalid_request`` unless this can be the name of a user's model."""
    bare = name.removeprefix(PREFIX)
    if not name.startswith(PREFIX) or not bare:
        raise invalid(f"the name of a model that is registered must be `{PREFIX}NAME`", "model_name")
    if len(name) > LONGEST_NAME:
        raise invalid(f"`model_name` must be at most {LONGEST_NAME} characters", "model_name")
    if not bare.isprintable() or _PARTS.search(bare) or bare.startswith(PREFIX) or bare.endswith(LATEST):
        raise invalid(
            f"`model_name` must be {PREFIX}NAME without slashes, control characters, spaces at its ends or {LATEST}",
            "model_name",
        )


def _place(said: Registration) -> HubPlace | TagPlace:
    if "/" not in said.checkpoint and said.recipe != "flm":
        what = "owner/repo or owner/repo:variant of a Hugging Face hub"
        raise invalid(f"`checkpoint` must be {what}, not {printable(said.checkpoint)!r}", "checkpoint")
    place = parse(catalogue.source_of(said.recipe, said.checkpoint))
    if isinstance(place, HubPlace if said.recipe != "flm" else TagPlace):
        return place
    raise invalid(f"{printable(said.checkpoint)!r} is no checkpoint for recipe {said.recipe}", "checkpoint")


def item_of(said: Registration) -> dict[str, Any]:
    """Return what ``user_models.json`` says of such a model, in Lemonade's words."""
    labels = [CUSTOM, *said.labels]
    if said.mmproj and "vision" not in labels:
        labels.append("vision")
    item: dict[str, Any] = {"checkpoint": said.checkpoint, "recipe": said.recipe, "suggested": True, "labels": labels}
    return {**item, "mmproj": said.mmproj} if said.mmproj else item


def complete(house: House, entry: Entry) -> None:
    """The files of a model are there: register it. Raises what is in the way of that."""
    found = files.locate(entry, house.settings.cache_dir)
    if found is None:
        raise Failure(Code.DOWNLOAD_FAILED, f"model {entry.name} is not whole", model=entry.name).raised()
    problem = unfit(entry.recipe, found.path)
    if problem:
        raise Failure(
            Code.INVALID_REQUEST, f"{entry.checkpoint} {problem}", model=entry.name, param="checkpoint"
        ).raised()
    mmproj = entry.sources[0].mmproj
    item: Mapping[str, Any] = {
        "checkpoint": entry.checkpoint,
        "recipe": entry.recipe,
        "suggested": entry.suggested,
        "labels": entry.labels,
        **({"mmproj": mmproj} if mmproj else {}),
        **({"size": round(found.size / 1e9, 4)} if found.size else {}),
    }
    house.models.register(entry.name, item)
    log.info("registered", model=entry.name, checkpoint=entry.checkpoint, recipe=entry.recipe)


def unfit(recipe: str, path: str) -> str:
    """Return why a recipe cannot load what was downloaded, empty if it may."""
    name = PurePath(path).name.lower()
    if recipe in _FOLDERS:
        return f"is no ONNX model, which recipe {recipe} needs" if name.endswith((".gguf", ".bin")) else ""
    what, *ends = _LOADED.get(recipe, ("", ""))
    return "" if name.endswith(tuple(ends)) else f"is no {what}, which recipe {recipe} needs"


def complete_or_fail(house: House, entry: Entry) -> Failure | None:
    """Register a model; return what was in the way."""
    try:
        complete(house, entry)
    except LemonbusError as problem:
        return problem.failure
    return None
