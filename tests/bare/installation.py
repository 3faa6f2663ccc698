"""The commands about systemd in the unit's own lines and in docs/keys.md, which are run as they stand there."""

from __future__ import annotations

import re

from tests.bare.root import CHECKOUT, Root

_COMMAND = re.compile(r"^#   (?!ExecStop)(.+?)(?: {2,}\(.+\))?$", re.MULTILINE)
UNIT = "lemonbus.service"


def commands(machine: Root, file: str) -> list[str]:
    """Return the commands in the first lines of a file of deploy/systemd."""
    return _COMMAND.findall(_read(machine, f"deploy/systemd/{file}"))


def upgrade(machine: Root) -> str:
    """Return the command that installs a newer release."""
    return _one(r"^# To install a newer release without a restart: (.+)$", _read(machine, f"deploy/systemd/{UNIT}"))


def drain(machine: Root) -> str:
    """Return the line for an end that takes longer than ``grace``."""
    return _one(r"^#   (ExecStop=.+)$", _read(machine, f"deploy/systemd/{UNIT}"))


def documented_key(machine: Root) -> str:
    """Return the lines that give an installed unit a key."""
    return _one(r"From root's shell:\n\n((?:    .+\n)+)", _read(machine, "docs/keys.md"))


def _read(machine: Root, file: str) -> str:
    return (machine.folder / CHECKOUT[1:] / file).read_text()


def _one(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    assert found, pattern
    return found[1]
