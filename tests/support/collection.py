"""What the processes of a test run share while they collect the tests."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from pathlib import Path

import pytest


def import_share(config: pytest.Config, number: int, processes: int) -> None:
    """Import every ``processes``-th module that is to be collected, from module ``number`` on.

    Each process imports all modules, and the first one to import a module rewrites its assertions, compiles it, and leaves
    the result in a file for the others. If all had the same order, they would rewrite every module at the same time.
    """
    for path in modules(config.rootpath, config.args)[number::processes]:
        # Collection imports it again if that fails, and reports it.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(path.relative_to(config.rootpath).with_suffix("").parts))


def modules(root: Path, arguments: Sequence[str]) -> list[Path]:
    """Return the modules of tests that these arguments of pytest name: files, folders, or tests in files."""
    found: set[Path] = set()
    for argument in arguments:
        path = root / argument.partition("::")[0]
        found.update(path.rglob("test_*.py") if path.is_dir() else [path])
    return sorted(found)
