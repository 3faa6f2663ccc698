"""Downloads: one job process for each model, and the calls that wait for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import structs

from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.calls import Progress
from protocol.messages.model_files import ListDownloads, Pulled, PullFailed, StartPull
from protocol.runtime import logs
from supervisor.handlers.requests import resolve_target
from supervisor.models import files, registration
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.processes.child_processes import ChildProcess
from supervisor.processes.download_registry import DownloadWaiter, RunningDownload
from supervisor.runtime import jobs
from supervisor.runtime.supervisor import Handler, Supervisor

MODULE: Final = "workers.jobs.pull"
MAX_DOWNLOADS: Final = 8
"""How many downloads run at a time: each is a process, and they share one network connection."""

log = logs.get_logger()


def fetch(
    supervisor: Supervisor,
    model: str,
    waiter: DownloadWaiter | None = None,
    *,
    pending: CatalogueEntry | None = None,
    present: Sequence[str] = (),
) -> None:
    """Download a model, or join the running download; raises ``offline``, or ``overloaded`` if too many run.

    ``pending``: register it when the download has succeeded. ``present``: files that are already there.
    """
    running = join(supervisor, model, waiter)
    if running:
        running.pending = pending or running.pending
        return
    if supervisor.settings.offline and not present:
        reason = f"Model {model} is not on this machine, and the setting `offline` forbids downloads"
        raise Failure(Code.OFFLINE, reason, model=model).raised()
    if len(supervisor.downloads.running()) >= MAX_DOWNLOADS:
        explanation = f"{MAX_DOWNLOADS} models are being downloaded already"
        raise Failure(Code.OVERLOADED, explanation, model=model, retry_after=10.0).raised()
    sources = pending.sources if pending else supervisor.models.resolve(model).sources
    order = StartPull(model, sources, supervisor.settings.cache_dir, list(present))
    job, child = jobs.start(supervisor, MODULE, _job_ended, order)
    download = supervisor.downloads.begin(job, model, sources, waiter, pending)
    download.child = child
    log.info("download started", model=model, job=job)


def join(supervisor: Supervisor, model: str, waiter: DownloadWaiter | None) -> RunningDownload | None:
    """Let a call wait for a running download, and send it the latest progress; return None if there is none."""
    download = supervisor.downloads.join(model, waiter)
    if download is not None and download.last is not None and waiter is not None and waiter.progress:
        supervisor.bus.send(waiter.peer, structs.replace(download.last, number=waiter.number))
    return download


def fetch_for_scheduler(supervisor: Supervisor, model: str) -> None:
    """Download a model that requests wait for. If the download is refused, they get the failure."""
    try:
        fetch(supervisor, model)
    except LemonbusError as problem:
        supervisor.scheduler.download_ended(model, None, problem.failure, supervisor.loop.now())
        supervisor.execute_effects()


def progress(supervisor: Supervisor, job: str, message: Progress, _payload: bytes) -> None:
    """Pass the progress of a job on to the calls that want it."""
    download = supervisor.downloads.of_job(job)
    if download is not None:
        last = download.last
        if last is None or last.file != message.file or message.percent // 10 > last.percent // 10:
            log.info("downloading", model=download.model, file=message.file, percent=message.percent)
        download.last = message
        for waiter in download.waiters:
            if waiter.progress:
                supervisor.bus.send(waiter.peer, structs.replace(message, number=waiter.number))


def result(supervisor: Supervisor, job: str, message: Pulled | PullFailed, _payload: bytes) -> None:
    """Keep the result of a job until its process has ended."""
    jobs.dismiss(supervisor, job)
    download = supervisor.downloads.of_job(job)
    if download is not None:
        download.result = message if isinstance(message, Pulled) else message.failure


def take_over(supervisor: Supervisor, job: str, child: ChildProcess, order: StartPull) -> jobs.OnEnded | None:
    """Register a download that an earlier supervisor's job does; None if another job downloads the model."""
    if supervisor.downloads.running_for(order.name) is not None:
        return None
    download = supervisor.downloads.begin(job, order.name, order.sources, None)
    download.child = child
    return _job_ended


def cancel(supervisor: Supervisor, model: str, why: Failure, then: Callable[[], None]) -> bool:
    """End a download, refuse the waiting calls with ``why``, then call ``then``; return False if there is none."""
    download = supervisor.downloads.running_for(model)
    if download is None or download.child is None:
        return False
    download.result = why
    download.then.append(then)
    supervisor.processes.kill(download.child)
    return True


def _job_ended(supervisor: Supervisor, job: str, why: str) -> None:
    download = supervisor.downloads.ended(job, why)
    if download is not None and download.result is not None:
        outcome: Pulled | Failure = download.result
        if isinstance(outcome, Pulled) and download.pending:
            outcome = _registered(supervisor, download.pending) or outcome
        if isinstance(outcome, Pulled):
            outcome = _kept(supervisor, download.model) or outcome
        elif download.provisional and supervisor.scheduler.view.model(download.model) is None:
            supervisor.models.adopted.forget(download.model)
        failure = outcome if isinstance(outcome, Failure) else None
        supervisor.downloads.note_end(download.model, download.last, failure, supervisor.loop.now())
        _report_outcome(supervisor, download, outcome)
        _load_downloaded(supervisor, download.model, outcome)
        for follows in download.then:
            follows()
        supervisor.reconcile()


def _registered(supervisor: Supervisor, entry: CatalogueEntry) -> Failure | None:
    """Register a downloaded model; return the failure if that did not succeed."""
    try:
        found = files.locate(entry, supervisor.settings.cache_dir)
        supervisor.models.register(entry.name, registration.downloaded_item(entry, found))
    except Exception as problem:  # noqa: BLE001 - the calls that wait for the download must be answered
        return supervisor.errors.failure_of(problem, model=entry.name)
    log.info("registered", model=entry.name, checkpoint=entry.checkpoint, recipe=entry.recipe)
    return None


def _kept(supervisor: Supervisor, model: str) -> Failure | None:
    """Keep an adopted model beyond the server's end; return the failure if that cannot be written."""
    try:
        supervisor.models.adopted.keep(model)
    except LemonbusError as problem:
        return problem.failure
    return None


def _report_outcome(supervisor: Supervisor, download: RunningDownload, outcome: Pulled | Failure) -> None:
    if isinstance(outcome, Failure):
        wanted = download.then or supervisor.scheduler.view.closing
        say, event = (log.info, "download stopped") if wanted else (log.error, "download failed")
        say(event, model=download.model, reason=outcome.message, detail=outcome.detail)
    else:
        log.info("download complete", model=download.model)
    for waiter in download.waiters:
        jobs.reply(supervisor, waiter.peer, waiter.number, outcome, when_written=True)


def _load_downloaded(supervisor: Supervisor, model: str, outcome: Pulled | Failure) -> None:
    """If a request waits for the downloaded model, load it."""
    options = supervisor.scheduler.requested_options(model)
    spec = None
    if supervisor.scheduler.view.model(model) is not None and isinstance(outcome, Pulled):
        try:
            spec = resolve_target(supervisor, model, options).spec
        except Exception as problem:  # noqa: BLE001 - the requests that wait for the model must be answered
            outcome = supervisor.errors.failure_of(problem, model=model)
    failure = outcome if isinstance(outcome, Failure) else None
    supervisor.scheduler.download_ended(model, spec, failure, supervisor.loop.now())


def list_downloads(supervisor: Supervisor, peer: str, call: ListDownloads, _payload: bytes) -> None:
    """Answer with the downloads that run or have just ended."""
    supervisor.calls.answer(peer, call.number, supervisor.downloads.reports(supervisor.loop.now()))


HANDLERS: Final[dict[type, Handler]] = {
    Progress: progress,
    Pulled: result,
    PullFailed: result,
    ListDownloads: list_downloads,
}
