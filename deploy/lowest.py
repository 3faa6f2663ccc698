"""``python deploy/lowest.py``: prints pip constraints that take every dependency of setup.cfg in its lowest version."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Final

SETUP: Final = Path(__file__).resolve().parent.parent / "setup.cfg"
_REQUIREMENT: Final = re.compile(r"([\w.-]+)(?:\[[\w,-]+\])? >= ([\w.]+)(?:, < [\w.]+)?(?:; .+)?")


def lowest(setup: str) -> dict[str, str]:
    """Return package → lowest version, from the text of setup.cfg; raises ValueError for what has none, or two."""
    parser = ConfigParser(interpolation=None)
    parser.read_string(setup)
    bounds: dict[str, str] = {}
    for line in _requirements(parser):
        found = _REQUIREMENT.fullmatch(line)
        if found is None:
            raise ValueError(
                f"expected 'package >= version' or 'package >= version, < version', with or without '; marker', got {line!r}"
            )
        name, version = found.groups()
        if bounds.setdefault(name, version) != version:
            raise ValueError(f"{name} has two lowest versions: {bounds[name]} and {version}")
    return bounds


def _requirements(parser: ConfigParser) -> Iterator[str]:
    for text in (parser["options"]["install_requires"], *parser["options.extras_require"].values()):
        yield from filter(None, map(str.strip, text.splitlines()))


if __name__ == "__main__":
    sys.stdout.writelines(f"{name}=={version}\n" for name, version in lowest(SETUP.read_text()).items())
