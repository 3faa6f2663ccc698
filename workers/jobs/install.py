"""The job process that installs or removes one backend: ``python -m workers.jobs.install``.

What is being made lies in a draft beside its place and gets its name when it is whole; what is being removed
loses its name first.  Whatever a killed job left, the next one sweeps away.
"""

from __future__ import annotations

import os
import shutil
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from protocol import installed, logs
from protocol.backends import Installed, InstallFailed, Installing, InstallProgress, Uninstalling
from protocol.failures import Code, Failure
from protocol.installed import Record
from workers.jobs import disk, packages, release, unpack
from workers.jobs.errand import Errand
from workers.jobs.gauge import Gauge, Reading
from workers.jobs.trouble import SourceError

TELL_EVERY: Final = 0.1
_LOCK: Final = ".lock"
_DRAFT: Final = ".draft"
_GONE: Final = ".gone-"


class Install:
    """One order, from its coming to its result."""

    def __init__(self, errand: Errand) -> None:
        """Wait for the order."""
        self._errand = errand
        self._gauge = Gauge()
        self._told = Reading()
        errand.carry_out(Installing | Uninstalling, self._work, self._finish)
        errand.loop.every(TELL_EVERY, self._tell)

    def _work(self, order: Installing | Uninstalling) -> Installed | InstallFailed:
        return work(order, self._gauge, self._errand.settings.offline)

    def _tell(self) -> None:
        reading = self._gauge.reading
        if reading != self._told:
            self._told = reading
            self._errand.bus.send(InstallProgress(*reading))

    def _finish(self, result: Installed | InstallFailed) -> None:
        self._tell()
        self._errand.end(result)


def work(order: Installing | Uninstalling, gauge: Gauge, offline: bool) -> Installed | InstallFailed:
    """Do an order; whatever goes wrong is the failure that is returned."""
    name = f"{order.recipe}:{order.backend}"
    verb = "installed" if isinstance(order, Installing) else "removed"
    try:
        if isinstance(order, Uninstalling):
            return remove(order)
        if not offline:
            return install(order, gauge)
        failure = Failure(Code.OFFLINE, f"backend {name} could not be {verb}: the server is offline")
    except SourceError as problem:
        reason = f"backend {name} could not be {verb}: {problem}"
        failure = Failure(Code.DOWNLOAD_FAILED, reason, detail=problem.detail)
    except OSError as problem:
        said = os.strerror(problem.errno) if problem.errno else type(problem).__name__
        failure = Failure(Code.DOWNLOAD_FAILED, f"backend {name} could not be {verb}: {said}", detail=str(problem))
    except Exception:  # noqa: BLE001 - whatever it was, the waiting callers must be told
        failure = Failure(Code.INTERNAL, f"backend {name} could not be {verb}", detail=traceback.format_exc())
    logs.get().debug("order failed", backend=name, reason=failure.message, detail=failure.detail)
    return InstallFailed(failure)


def install(order: Installing, gauge: Gauge) -> Installed:
    """Install what is ordered, whole or not at all; raises :class:`SourceError` and OSError."""
    home = installed.home(order.cache_dir, order.recipe, order.backend)
    final = home / f"{order.version}-{order.digest}"
    with disk.locked(home / _LOCK, lambda: None):
        _sweep(home, release.piece(order.archive))
        if not any(each.folder == final for each in installed.find(order.cache_dir, order.recipe, order.backend)):
            _away(final)
            draft = home / _DRAFT
            draft.mkdir()
            try:
                _fill(order, draft, gauge)
                draft.rename(final)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
            _sync(home)
        if order.retire:
            for each in installed.find(order.cache_dir, order.recipe, order.backend):
                if each.folder != final:
                    _away(each.folder)
        _sweep(home)
    return Installed(max(1, gauge.reading.total_files))


def _fill(order: Installing, draft: Path, gauge: Gauge) -> None:
    program = ""
    if order.wheels:
        staging = draft / "staging"
        staging.mkdir()
        packages.install(order.wheels, draft / installed.SITE, staging, gauge)
        shutil.rmtree(staging)
    else:
        name = release.name_of(order.archive.url)
        archive = release.fetch(order.archive, draft.parent, gauge)
        try:
            unpack.unpack(archive, draft / installed.FILES, name)
        finally:
            archive.unlink()  # good or refused, it was whole: nothing of it is worth keeping
        program = unpack.program(draft / installed.FILES, order.executable)
        if not program:
            raise SourceError(f"{name} has no program {order.executable}")
    record = Record(order.recipe, order.backend, order.version, order.digest, program)
    with (draft / installed.RECORD).open("wb") as file:
        file.write(msgspec.json.encode(record))
        file.flush()
        os.fsync(file.fileno())


def remove(order: Uninstalling) -> Installed:
    """Remove every version of a backend; raises OSError."""
    home = installed.home(order.cache_dir, order.recipe, order.backend)
    if not home.exists():
        return Installed()
    with disk.locked(home / _LOCK, lambda: None):
        for each in installed.find(order.cache_dir, order.recipe, order.backend):
            _away(each.folder)
        _sweep(home)
    return Installed()


def _away(folder: Path) -> None:
    """Take a folder's name away at once, however long its removal takes."""
    if folder.exists():
        folder.rename(folder.with_name(f"{_GONE}{os.getpid()}-{folder.name}"))


def _sweep(home: Path, keep: str = "") -> None:
    """Remove what is no installation, but for the piece of a download that goes on."""
    for leftover in home.glob(".*"):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        elif leftover.name not in (_LOCK, keep):
            leftover.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    with suppress(OSError):  # some file systems cannot; the rename is whole there, only perhaps not yet durable
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def main() -> None:
    """Run one job to its end."""
    errand = Errand()
    Install(errand)
    errand.run()


if __name__ == "__main__":
    main()
