"""Removes what nothing uses, unless a process uses it after all, and says what the disk got back."""

from __future__ import annotations

import os
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from protocol.messages.disk_usage import DiskItemKind
from workers.jobs import disk
from workers.jobs.disk_contents.findings import Finding
from workers.jobs.disk_contents.sizes import files_below
from workers.prompt_cache.store import Draft, PromptCacheStore

_GONE: Final = ".gone-"
"""Before the name of a folder that is being removed: no installation and no model."""
_IN_USE: Final = "another process is using it"


def remove(finding: Finding, caches: PromptCacheStore) -> tuple[int, str]:
    """Remove it. Return the bytes that were freed, and why it is still there, empty if it is not."""
    path = finding.path
    try:
        if finding.kind is DiskItemKind.PROMPT_CACHE:
            caches.remove(path)
            return _result(finding, path)
        if path.parent == caches.root:
            Draft(path).discard()  # raises if a worker holds it
            return _result(finding, path)
        with disk.locked_now(finding.lock) if finding.lock is not None else nullcontext(True) as free:
            return _result(finding, _removed(finding)) if free else (0, _IN_USE)
    except BlockingIOError:
        return 0, _IN_USE
    except OSError as problem:
        return 0, os.strerror(problem.errno) if problem.errno else type(problem).__name__


def _removed(finding: Finding) -> Path:
    """Remove a file, or a folder, which first loses its name; return where something of it may still be."""
    path = finding.path
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return path
    gone = path
    if finding.kind in (DiskItemKind.ENGINE, DiskItemKind.UNKNOWN):
        gone = path.with_name(f"{_GONE}{os.getpid()}-{path.name}")
        path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
    return gone


def _result(finding: Finding, path: Path) -> tuple[int, str]:
    left = files_below(path)
    return finding.files.freed(left), "not all of it could be removed" if left.sizes else ""
