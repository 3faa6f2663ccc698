"""A page of docs/clients: its packages and its blocks, read from the text.

A block has one of the :data:`LANGUAGES`. A title (```` ```toml title="~/.codex/config.toml" ````) makes it a file. The blocks in ``python`` and
``js`` without a title are programs, and those of the language ``sh`` are commands. The line ``Tried with `PACKAGE` VERSION and …`` has the versions.
"""

from __future__ import annotations

import re
import shlex
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.server import ROOT

FOLDER: Final = ROOT / "docs" / "clients"
PAGES: Final = {path.stem: path for path in sorted(FOLDER.glob("*.md")) if path.stem != "index"}
LANGUAGES: Final = frozenset({"sh", "python", "js", "json", "yaml", "toml"})
_FENCE: Final = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_INSTALLERS: Final = (("pip", "install"), ("pipx", "install"), ("npm", "install", "-g"), ("npm", "install"))


class Block(NamedTuple):
    """A block of a page."""

    section: str
    language: str
    title: str
    """The path of the file; empty for a program or commands."""
    text: str

    @property
    def runs(self) -> bool:
        return not self.title and self.section != "Install"


class Packages(NamedTuple):
    """What a page installs with one installer."""

    installer: str
    """``pip`` or ``npm``."""
    requirements: dict[str, str]
    """Name → as the page writes it: `litellm` → ``litellm[proxy]``."""


class ClientPage:
    """One page."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self.text = path.read_text()

    @cached_property
    def blocks(self) -> list[Block]:
        """All blocks in order."""
        blocks = []
        for chapter in re.split(r"^## ", self.text, flags=re.MULTILINE):
            section = chapter.split("\n", 1)[0]
            blocks += [Block(section, *found) for found in _FENCE.findall(chapter)]
        return blocks

    @cached_property
    def tried(self) -> dict[str, str]:
        """Package → the version that was tried."""
        (line,) = re.findall(r"^Tried with (.*?)\.$", self.text, re.MULTILINE)
        return dict(re.findall(r"`([^`]+)` ([\w.]+)", line))

    @cached_property
    def packages(self) -> list[Packages]:
        """What the chapter ``Install`` installs."""
        lines = [line for block in self.blocks if block.section == "Install" for line in block.text.splitlines()]
        return [_packages(line) for line in lines]

    @property
    def sections(self) -> dict[str, list[Block]]:
        """Chapter → its blocks that run."""
        found: dict[str, list[Block]] = {}
        for block in self.blocks:
            if block.runs:
                found.setdefault(block.section, []).append(block)
        return found


def _packages(line: str) -> Packages:
    words = shlex.split(line)
    for installer in _INSTALLERS:
        if tuple(words[: len(installer)]) == installer:
            names = words[len(installer) :]
            return Packages(installer[0].removesuffix("x"), {re.sub(r"\[.*", "", name): name for name in names})
    raise AssertionError(f"no command that installs: {line}")
