"""Files that tests make once per machine and keep: tiny models, packages of npm."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder ``name`` of the cache; ``make`` fills it if it is not there. Other processes wait meanwhile.

    ``name`` must depend on what is made. A folder that could not be completed does not exist.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lemonbus-tests"
    cache.mkdir(parents=True, exist_ok=True)
    made = cache / name
    if made.is_dir():
        return made
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.is_dir():
            draft = Path(tempfile.mkdtemp(dir=cache, prefix="draft-"))
            try:
                make(draft)
                draft.rename(made)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    return made
