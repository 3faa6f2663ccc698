"""The job process that installs or removes one backend: ``python -m workers.jobs.install``.

An installation is made in a draft folder and gets its name when it is complete. A removal begins with renaming the
folder. The next job removes whatever a killed job left.
"""

from __future__ import annotations

from protocol.runtime import memory

if __name__ == "__main__":
    memory.pause_gc()

import os
import shutil
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from protocol.failures import Code, Failure
from protocol.messages.backend_installs import Installed, InstallFailed, InstallProgress, StartInstall, StartUninstall
from protocol.models import installations
from protocol.models.installations import InstallationRecord
from protocol.runtime import logs
from workers.jobs import disk
from workers.jobs.backend_install import archive_names, wheels
from workers.jobs.errors import SourceError, not_written
from workers.jobs.job import JobProcess
from workers.jobs.progress import DownloadProgress, ProgressSnapshot

REPORT_INTERVAL_S: Final = 0.1
_LOCK: Final = ".lock"
_DRAFT: Final = ".draft"
_REMOVED_PREFIX: Final = ".gone-"


class InstallJob:
    """One order, until its result."""

    def __init__(self, job: JobProcess) -> None:
        """Wait for the order."""
        self._job = job
        self._progress = DownloadProgress()
        self._reported = ProgressSnapshot()
        job.carry_out(StartInstall | StartUninstall, self._work, self._finish)
        job.loop.every(REPORT_INTERVAL_S, self._report)

    def _work(self, order: StartInstall | StartUninstall) -> Installed | InstallFailed:
        return run_order(order, self._progress, self._job.settings.offline)

    def _report(self) -> None:
        reading = self._progress.reading
        if reading != self._reported:
            self._reported = reading
            self._job.report(InstallProgress(*reading))

    def _finish(self, result: Installed | InstallFailed) -> None:
        self._report()
        self._job.end(result)


def run_order(
    order: StartInstall | StartUninstall, progress: DownloadProgress, offline: bool
) -> Installed | InstallFailed:
    """Carry out an order. Every error becomes the failure that is returned."""
    name = f"{order.recipe}:{order.backend}"
    verb = "installed" if isinstance(order, StartInstall) else "removed"
    try:
        if isinstance(order, StartUninstall):
            return remove(order)
        if not offline:
            return install(order, progress)
        failure = Failure(Code.OFFLINE, f"backend {name} could not be {verb}: the setting `offline` forbids downloads")
    except SourceError as problem:
        reason = f"backend {name} could not be {verb}: {problem}"
        failure = Failure(problem.code, reason, detail=problem.detail)
    except OSError as problem:
        unwritten = not_written(problem)
        failure = Failure(unwritten.code, f"backend {name} could not be {verb}: {unwritten}", detail=unwritten.detail)
    except Exception:  # noqa: BLE001 - the waiting callers must be answered after any error
        failure = Failure(Code.INTERNAL, f"backend {name} could not be {verb}", detail=traceback.format_exc())
    logs.get_logger().debug("backend job failed", backend=name, reason=failure.message, detail=failure.detail)
    return InstallFailed(failure)


def install(order: StartInstall, progress: DownloadProgress) -> Installed:
    """Install a backend completely or not at all; raises :class:`SourceError` and OSError."""
    home = installations.backend_folder(order.cache_dir, order.recipe, order.backend)
    final = home / f"{order.version}-{order.digest}"
    with disk.locked(home / _LOCK, lambda: None):
        _sweep(home, archive_names.partial_name(order.archive))
        if not any(
            each.folder == final
            for each in installations.find_installations(order.cache_dir, order.recipe, order.backend)
        ):
            _rename_away(final)
            draft = home / _DRAFT
            draft.mkdir()
            try:
                _fill(order, draft, progress)
                draft.rename(final)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
            _sync(home)
        if order.retire:
            for each in installations.find_installations(order.cache_dir, order.recipe, order.backend):
                if each.folder != final:
                    _rename_away(each.folder)
        _sweep(home)
    return Installed(max(1, progress.reading.total_files))


def _fill(order: StartInstall, draft: Path, progress: DownloadProgress) -> None:
    program = ""
    if order.wheels:
        staging = draft / "staging"
        staging.mkdir()
        wheels.install(order.wheels, draft / installations.SITE_FOLDER, staging, progress)
        shutil.rmtree(staging)
    else:
        program = _unpack_release(order, draft, progress)
    record = InstallationRecord(order.recipe, order.backend, order.version, order.digest, program)
    with (draft / installations.RECORD_FILE).open("wb") as file:
        file.write(msgspec.json.encode(record))
        file.flush()
        os.fsync(file.fileno())


def _unpack_release(order: StartInstall, draft: Path, progress: DownloadProgress) -> str:
    """Fetch the archive into the draft; return the path of its program there."""
    # An HTTP library takes most of 80 ms of processor time, which wheels and removals do not need.
    from workers.jobs.backend_install import release_archive, unpack  # noqa: PLC0415

    name = archive_names.name_of(order.archive.url)
    archive = release_archive.fetch(order.archive, draft.parent, progress)
    try:
        unpack.unpack(archive, draft / installations.FILES_FOLDER, name)
    finally:
        archive.unlink()  # good or refused, it was complete: nothing of it is worth keeping
    program = unpack.find_program(draft / installations.FILES_FOLDER, order.executable)
    if not program:
        raise SourceError(f"{name} has no program {order.executable}")
    return program


def remove(order: StartUninstall) -> Installed:
    """Remove every version of a backend; raises OSError."""
    home = installations.backend_folder(order.cache_dir, order.recipe, order.backend)
    if not home.exists():
        return Installed()
    with disk.locked(home / _LOCK, lambda: None):
        for each in installations.find_installations(order.cache_dir, order.recipe, order.backend):
            _rename_away(each.folder)
        _sweep(home)
    return Installed()


def _rename_away(folder: Path) -> None:
    """Remove a folder's name at once, however long its removal takes."""
    if folder.exists():
        folder.rename(folder.with_name(f"{_REMOVED_PREFIX}{os.getpid()}-{folder.name}"))


def _sweep(home: Path, keep: str = "") -> None:
    """Remove everything that is not an installation, except the partial file of a download that can be continued."""
    for leftover in home.glob(".*"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        elif leftover.name not in (_LOCK, keep):
            leftover.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    with suppress(OSError):  # some file systems cannot; the rename is complete there, but perhaps not yet durable
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def main() -> None:
    """Run one job to its end."""
    job = JobProcess()
    InstallJob(job)
    job.run()


if __name__ == "__main__":
    main()
