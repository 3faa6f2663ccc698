"""The job process that compares downloaded models with the hub: ``python -m workers.jobs.check_updates``.

It asks for each repository once, downloads nothing and changes nothing.
"""

from __future__ import annotations

from protocol.runtime import memory

if __name__ == "__main__":
    memory.pause_gc()

import time
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from huggingface_hub import constants
from msgspec import structs

from protocol.messages.model_files import CheckpointSource
from protocol.messages.update_checks import StartUpdateCheck, UpdatesChecked
from protocol.models.checkpoints import HubCheckpoint, parse
from protocol.models.stored_files import snapshots
from protocol.runtime import logs
from workers.jobs.errors import SourceError
from workers.jobs.job import JobProcess
from workers.jobs.model_download.huggingface import wanted_files
from workers.jobs.model_download.huggingface_listing import RepositoryListing, explain_hub_error, list_repository
from workers.jobs.model_download.partial_file import has_digest

LONGEST_S: Final = 50.0
"""After this, no other repository is asked for: the rest is reported as not checked."""

log = logs.get_logger()


def check(order: StartUpdateCheck) -> UpdatesChecked:
    """Return which models have different files at the hub, and which could not be checked."""
    listing = cache(_listing)
    end = time.monotonic() + LONGEST_S
    newer, failed = [], {}
    for name, source in order.models.items():
        if time.monotonic() > end:
            failed[name] = f"the hub did not answer in time: {LONGEST_S:g} s had passed"
            continue
        try:
            if any(_is_newer(each, listing) for each in source.with_parts()):
                newer.append(name)
        except SourceError as problem:
            failed[name] = str(problem)
        except Exception:  # noqa: BLE001 - the others are to be checked after any error
            log.warning("a model could not be compared with the hub", model=name, detail=traceback.format_exc())
            failed[name] = "it could not be compared with the hub"
    return UpdatesChecked(newer, failed)


def _listing(repo: str) -> RepositoryListing:
    try:
        return list_repository(repo)
    except Exception as problem:  # the library raises errors of three HTTP libraries, depending on its version
        raise explain_hub_error(problem, repo) from problem


def _is_newer(source: CheckpointSource, listing: Callable[[str], RepositoryListing]) -> bool:
    """Return whether a file of a checkpoint differs from the one here. Of a file that is pinned, only the pin counts."""
    checkpoint = parse(source.checkpoint)
    if not isinstance(checkpoint, HubCheckpoint):
        return False
    snapshot = next(snapshots(Path(constants.HF_HUB_CACHE) / checkpoint.folder), None)
    if snapshot is None:
        return False
    files = wanted_files(checkpoint, structs.replace(source, sha256=""), listing(checkpoint.repo).files)
    expected = [each.etag for each in files]
    expected[0] = source.sha256 or expected[0]
    return any(
        digest and not _is_here(snapshot / each.name, each.size, digest)
        for each, digest in zip(files, expected, strict=True)
    )


def _is_here(file: Path, size: int, digest: str) -> bool:
    """Return whether a file in the hub's cache has this digest, which is the name of what its link points to."""
    try:
        return file.readlink().name == digest if file.is_symlink() else has_digest(file, size, digest)
    except OSError:
        return False


def main() -> None:
    """Run one job to its end."""
    job = JobProcess()
    job.carry_out(StartUpdateCheck, check)
    job.run()


if __name__ == "__main__":
    main()
