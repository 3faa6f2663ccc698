"""Running downloads: one job process a model; whoever asks for the same model joins it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from protocol.admin import Progress
from protocol.failures import Code, Failure
from protocol.shelf import Pulled, Source
from supervisor.catalogue import Entry
from supervisor.processes import Child


class Waiter(NamedTuple):
    """A call that waits for a download."""

    peer: str
    number: int
    progress: bool


class Download:
    """One model on its way."""

    def __init__(self, model: str, sources: list[Source], pending: Entry | None = None) -> None:
        """Not started yet. ``pending``: what is to be registered once its files are there."""
        self.model = model
        self.sources = sources
        self.pending = pending
        self.child: Child | None = None
        self.waiters: list[Waiter] = []
        self.last: Progress | None = None
        self.result: Pulled | Failure | None = None
        self.then: list[Callable[[], None]] = []
        """What is to be done when its job is gone and everybody was told."""


class Downloads:
    """The register of downloads. Pure: processes are owned elsewhere."""

    def __init__(self) -> None:
        """Nothing is on its way."""
        self._by_model: dict[str, Download] = {}
        self._by_job: dict[str, Download] = {}

    def running(self) -> list[str]:
        """Return the models on their way."""
        return sorted(self._by_model)

    def running_for(self, model: str) -> Download | None:
        """Return the download of a model, None if there is none."""
        return self._by_model.get(model)

    def join(self, model: str, waiter: Waiter | None) -> Download | None:
        """Wait for a running download; return None if there is none."""
        download = self._by_model.get(model)
        if download and waiter:
            download.waiters.append(waiter)
        return download

    def begin(
        self, job: str, model: str, sources: list[Source], waiter: Waiter | None, pending: Entry | None = None
    ) -> Download:
        """Register a new download that ``job`` does."""
        download = self._by_model[model] = self._by_job[job] = Download(model, sources, pending)
        if waiter:
            download.waiters.append(waiter)
        return download

    def of_job(self, job: str) -> Download | None:
        """Return what a job downloads."""
        return self._by_job.get(job)

    def ended(self, job: str, why: str) -> Download | None:
        """The job's process is gone; return its download, with a result in any case."""
        download = self._by_job.pop(job, None)
        if download is None:
            return None
        self._by_model.pop(download.model, None)
        if download.result is None:
            reason = f"The download of {download.model} was interrupted ({why}); what was fetched is kept"
            download.result = Failure(Code.DOWNLOAD_FAILED, reason, model=download.model)
        return download

    def forget(self, peer: str, number: int | None = None) -> None:
        """A caller (or all calls of a peer) waits no more; the download goes on."""
        for download in self._by_model.values():
            download.waiters = [
                waiter
                for waiter in download.waiters
                if waiter.peer != peer or (number is not None and waiter.number != number)
            ]
