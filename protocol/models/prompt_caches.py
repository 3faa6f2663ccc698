"""Where kept prompt caches lie. Workers write them; a job removes those of a deleted model.

``CACHE_DIR/prompt_caches/MODEL-KEY-NUMBER/`` holds the slots of one engine, with a manifest. MODEL is a digest of the
model's name. KEY is a digest of everything that must be the same for the files to be of use. A later entry has a
greater NUMBER. A folder gets its name when it is complete; names that begin with a dot are drafts.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final, NamedTuple

KEY_LENGTH: Final = 32
"""Length of a key in hexadecimal digits."""
_MODEL_LENGTH: Final = 16
_ENTRY_NAME: Final = re.compile(rf"([0-9a-f]{{{_MODEL_LENGTH}}})-([0-9a-f]{{{KEY_LENGTH}}})-([0-9]{{1,20}})")


class EntryName(NamedTuple):
    """The parts of the name of an entry's folder."""

    model: str
    key: str
    number: int

    def __str__(self) -> str:
        """Return the name of the folder."""
        return f"{self.model}-{self.key}-{self.number}"


def root(cache_dir: str) -> Path:
    """Return the folder of all kept prompt caches. It is private to this user: they contain clients' texts."""
    return Path(cache_dir) / "prompt_caches"


def model_digest(name: str) -> str:
    """Return the digest that replaces a model's name in the names of folders."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_MODEL_LENGTH]


def parse_entry_name(name: str) -> EntryName | None:
    """Return the parts of the name of an entry's folder; None for any other name."""
    found = _ENTRY_NAME.fullmatch(name)
    return EntryName(found[1], found[2], int(found[3])) if found else None


def entries_of(cache_dir: str, model: str) -> list[Path]:
    """Return the folders with kept prompt caches of a model."""
    digest = model_digest(model)
    try:
        folders = list(root(cache_dir).iterdir())
    except OSError:
        return []
    return [folder for folder in folders if (name := parse_entry_name(folder.name)) and name.model == digest]
