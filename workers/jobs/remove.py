"""The job process that removes a model's files and its kept prompt caches: ``python -m workers.jobs.remove``.

In a repository of the hub's cache, it removes the given names, the blobs that no other name there uses, partial
downloads, and the whole repository if no file is left.
"""

from __future__ import annotations

from protocol.runtime import memory

if __name__ == "__main__":
    memory.pause_gc()

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from protocol.failures import Code, Failure
from protocol.messages.model_files import Removed, RemoveFailed, StartRemoval
from workers.jobs.job import JobProcess
from workers.jobs.model_programs import PROGRAMS
from workers.prompt_cache.store import PromptCacheStore

PARTIAL: Final = ".incomplete"


def remove(order: StartRemoval) -> Removed | RemoveFailed:
    """Remove the files of an order. A file that is already gone counts as removed."""
    try:
        scheme, _, tag = order.tag.partition(":")
        problem = PROGRAMS[scheme].remove(tag) if tag else ""
        if problem:
            return _failed(order, problem)
        targets = {_real(file) for file in order.files if Path(file).is_symlink()}
        for file in order.files:
            Path(file).unlink(missing_ok=True)
            _prune(Path(file).parent)
        for target in targets:
            _remove_blob(target)
        for repository in order.repositories:
            _remove_leftovers(Path(repository))
    except OSError as error:
        return _failed(order, f"a file could not be removed: {os.strerror(error.errno or 0)}", str(error))
    return Removed(order.name, len(order.files))


def _real(path: str) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve raises for a link to itself


def _failed(order: StartRemoval, why: str, detail: str = "") -> RemoveFailed:
    message = f"model {order.name} could not be deleted: {why}"
    return RemoveFailed(order.name, Failure(Code.INTERNAL, message, model=order.name, detail=detail))


def _prune(folder: Path) -> None:
    """Remove a folder that is now empty, and empty ones above it; the cache itself stays."""
    with suppress(OSError):
        while folder.name not in ("snapshots", "models", "hub"):
            folder.rmdir()
            folder = folder.parent


def _remove_blob(blob: Path) -> None:
    """Remove a blob of a repository unless another name there uses it."""
    if blob.parent.name == "blobs" and blob not in _referenced_blobs(blob.parent.parent):
        blob.unlink(missing_ok=True)


def _referenced_blobs(repository: Path) -> set[Path]:
    """Return every file that the snapshots of a repository refer to."""
    return {_real(f"{folder}/{file}") for folder, _, files in os.walk(repository / "snapshots") for file in files}


def _remove_leftovers(repository: Path) -> None:
    locks = repository.parent / ".locks" / repository.name
    if not _referenced_blobs(repository) and not any(_in_use(lock) for lock in locks.glob("*.lock")):
        shutil.rmtree(repository, ignore_errors=True)
        shutil.rmtree(locks, ignore_errors=True)
        if repository.exists():
            raise PermissionError(1, "not all of the repository could be removed")
        return
    for part in (repository / "blobs").glob(f"*{PARTIAL}"):
        if not _in_use(locks / f"{part.name.removesuffix(PARTIAL)}.lock"):
            part.unlink(missing_ok=True)


def _in_use(lock: Path) -> bool:
    """Return whether some program is fetching the file of this lock."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def main() -> None:
    """Run one job to its end."""
    job = JobProcess()
    caches = PromptCacheStore(job.settings.cache_dir, job.settings.prompt_cache_bytes)

    def remove_all(order: StartRemoval) -> Removed | RemoveFailed:
        caches.remove_model(order.name)
        return remove(order)

    job.carry_out(StartRemoval, remove_all)
    job.run()


if __name__ == "__main__":
    main()
