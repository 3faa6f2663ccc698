"""Registering a model: which entries are valid, and what is written about them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

from msgspec import structs

from protocol.failures import Code, Failure, invalid, printable
from protocol.messages.model_files import Registration
from protocol.models.checkpoints import HubCheckpoint, TagCheckpoint, checkpoint_from_address, parse
from supervisor.models.catalogues import catalogue
from supervisor.models.catalogues.catalogue import MAX_NAME_LENGTH, CatalogueEntry
from supervisor.models.catalogues.user_models import PREFIX
from supervisor.models.files import ModelFiles
from supervisor.models.names import LATEST
from supervisor.models.options import load_options
from workers.backends.registry import DESCRIPTORS

CUSTOM: Final = "custom"
"""The label of models that users registered."""
_INVALID_NAME: Final = re.compile(r"[/\\]|^\.*$|^\s|\s$")


def entry_from_registration(name: str, registration: Registration, directories: Sequence[str] = ()) -> CatalogueEntry:
    """Return the entry of a registration; raises ``invalid_request`` naming what is wrong.

    ``directories``: see :func:`supervisor.models.options.load_options.file_directories`.
    """
    check_name(name)
    if registration.recipe not in DESCRIPTORS:
        known = ", ".join(DESCRIPTORS)
        raise invalid(f"there is no recipe {printable(registration.recipe)!r}; there are: {known}", "recipe")
    check_for_clients(registration.recipe)
    registration = _with_one_checkpoint(registration)
    load_options.check(DESCRIPTORS[registration.recipe], registration.options, directories)
    checkpoint = _parse_checkpoint(registration)
    if registration.mmproj and not (
        DESCRIPTORS[registration.recipe].projector and isinstance(checkpoint, HubCheckpoint)
    ):
        raise invalid(f"a model of recipe {registration.recipe} has no `mmproj`", "mmproj")
    if ".." in registration.mmproj.split("/") or registration.mmproj.startswith("/") or "\\" in registration.mmproj:
        raise invalid(f"{printable(registration.mmproj)!r} is not a file of a repository", "mmproj")
    try:
        return catalogue.entry(name, item_of(registration))
    except ValueError as problem:
        raise invalid(printable(str(problem), 300), "checkpoint") from None


def check_for_clients(recipe: str) -> None:
    """Raise ``invalid_request`` for a recipe whose models only the configuration names."""
    if keys := DESCRIPTORS[recipe].section_keys:
        reason = f"recipe {recipe} is only for sections of the configuration file, with {' or '.join(keys)}"
        raise invalid(reason, "recipe")


def check_name(name: str) -> None:
    """Raise ``invalid_request`` unless this is a valid name of a user's model."""
    bare = name.removeprefix(PREFIX)
    if not name.startswith(PREFIX) or not bare:
        raise invalid(f"the name of a model that is registered must be `{PREFIX}NAME`", "model_name")
    if len(name) > MAX_NAME_LENGTH:
        raise invalid(f"`model_name` must be at most {MAX_NAME_LENGTH} characters", "model_name")
    if not bare.isprintable() or _INVALID_NAME.search(bare) or bare.startswith(PREFIX) or bare.endswith(LATEST):
        raise invalid(
            f"`model_name` must be {PREFIX}NAME without slashes, control characters, spaces at its ends or {LATEST}",
            "model_name",
        )


def _with_one_checkpoint(registration: Registration) -> Registration:
    """Return a registration with ``checkpoint`` and ``mmproj``, and only the parts in ``checkpoints``; raises ``invalid_request``."""
    named = registration.checkpoints
    checkpoint = checkpoint_from_address(registration.checkpoint)
    if not named:
        return structs.replace(registration, checkpoint=checkpoint)
    main = checkpoint_from_address(named.get("main", checkpoint))
    if not main:
        raise invalid("`checkpoints` must have `main`", "checkpoints")
    if checkpoint not in ("", main):
        raise invalid("`checkpoint` and `checkpoints.main` name different files", "checkpoints")
    strange = sorted({*named} - catalogue.checkpoint_roles(registration.recipe))
    if strange:
        what = ", ".join(map(printable, strange))
        raise invalid(f"`checkpoints` has {what}, which recipe {registration.recipe} does not use", "checkpoints")
    repo, _, mmproj = checkpoint_from_address(named.get("mmproj", "")).rpartition(":")
    if repo not in ("", main.partition(":")[0]):
        raise invalid("`checkpoints.mmproj` must be a file of the same repository", "checkpoints")
    if registration.mmproj and mmproj not in ("", registration.mmproj):
        raise invalid("`mmproj` and `checkpoints.mmproj` name different files", "checkpoints")
    parts = {
        part: checkpoint_from_address(named[part]) for part in DESCRIPTORS[registration.recipe].parts if part in named
    }
    return structs.replace(registration, checkpoint=main, mmproj=mmproj or registration.mmproj, checkpoints=parts)


def _parse_checkpoint(registration: Registration) -> HubCheckpoint | TagCheckpoint:
    own_program = bool(DESCRIPTORS[registration.recipe].checkpoint_scheme)
    if "/" not in registration.checkpoint and not own_program:
        what = "owner/repo or owner/repo:variant of a Hugging Face hub"
        raise invalid(f"`checkpoint` must be {what}, not {printable(registration.checkpoint)!r}", "checkpoint")
    parsed = parse(catalogue.source_of(registration.recipe, registration.checkpoint))
    if isinstance(parsed, TagCheckpoint if own_program else HubCheckpoint):
        return parsed
    raise invalid(
        f"{printable(registration.checkpoint)!r} is not a checkpoint for recipe {registration.recipe}", "checkpoint"
    )


def item_of(registration: Registration) -> dict[str, Any]:
    """Return the item of ``user_models.json`` for such a model, in Lemonade's format."""
    labels = [CUSTOM, *registration.labels]
    if registration.mmproj and "vision" not in labels:
        labels.append("vision")
    if label := DESCRIPTORS[registration.recipe].label:
        labels.append(label)
    item: dict[str, Any] = {
        **_checkpoint_fields(registration.checkpoint, registration.checkpoints),
        "recipe": registration.recipe,
        "suggested": True,
        "labels": labels,
    }
    more = {"mmproj": registration.mmproj, "recipe_options": registration.options}
    return {**item, **{key: value for key, value in more.items() if value}}


def _checkpoint_fields(checkpoint: str, parts: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of an item that say where its files come from, in Lemonade's format: two forms exist."""
    return {"checkpoints": {"main": checkpoint, **parts}} if parts else {"checkpoint": checkpoint}


def downloaded_item(entry: CatalogueEntry, found: ModelFiles | None) -> dict[str, Any]:
    """Return the item of ``user_models.json`` for a model with these files; raises what is wrong with them."""
    if found is None:
        raise Failure(Code.DOWNLOAD_FAILED, f"model {entry.name} is incomplete", model=entry.name).raised()
    problem = unloadable_reason(entry.recipe, found.path)
    if problem:
        raise Failure(
            Code.INVALID_REQUEST, f"{entry.checkpoint} {problem}", model=entry.name, param="checkpoint"
        ).raised()
    return {**item_of_entry(entry), **({"size": round(found.size / 1e9, 4)} if found.size else {})}


def item_of_entry(entry: CatalogueEntry) -> dict[str, Any]:
    """Return the item of ``user_models.json`` for a model without its size."""
    mmproj = entry.sources[0].mmproj
    return {
        **_checkpoint_fields(entry.checkpoint, entry.checkpoints),
        "recipe": entry.recipe,
        "suggested": entry.suggested,
        "labels": entry.labels,
        **({"mmproj": mmproj} if mmproj else {}),
        **({"recipe_options": entry.options} if entry.options else {}),
    }


def unloadable_reason(recipe: str, path: str) -> str:
    """Return why a recipe cannot load what was downloaded; empty if it may be able to."""
    kind = DESCRIPTORS[recipe].model_files
    return "" if kind.accepts(PurePath(path).name) else f"is not the {kind.what} that recipe {recipe} needs"
