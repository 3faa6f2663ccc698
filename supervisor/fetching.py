"""Downloads: a job process a model, and whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import structs

from protocol import logs
from protocol.admin import Progress
from protocol.failures import Code, Failure, LemonbusError
from protocol.shelf import Pulled, PullFailed, Pulling
from supervisor import jobs, registration
from supervisor.catalogue import Entry
from supervisor.downloads import Download, Waiter
from supervisor.house import Handler, House
from supervisor.requests import target_of

MODULE: Final = "workers.jobs.pull"
MOST_DOWNLOADS: Final = 8
"""At once: each is a process, and they share one line."""

log = logs.get()


def fetch(
    house: House,
    model: str,
    waiter: Waiter | None = None,
    *,
    pending: Entry | None = None,
    present: Sequence[str] = (),
) -> None:
    """Download a model, or join the download that runs; raises ``offline``, and ``overloaded`` for one too many.

    ``pending``: it is registered when that has succeeded.  ``present``: files that are there already.
    """
    running = join(house, model, waiter)
    if running:
        running.pending = pending or running.pending
        return
    if house.settings.offline and not present:
        reason = f"Model {model} is not on this machine and the server is offline"
        raise Failure(Code.OFFLINE, reason, model=model).raised()
    if len(house.downloads.running()) >= MOST_DOWNLOADS:
        said = f"{MOST_DOWNLOADS} models are being downloaded already"
        raise Failure(Code.OVERLOADED, said, model=model, retry_after=10.0).raised()
    sources = pending.sources if pending else house.models.sources(model)
    order = Pulling(model, sources, house.settings.cache_dir, list(present))
    job, child = jobs.start(house, MODULE, _ended, order)
    download = house.downloads.begin(job, model, sources, waiter, pending)
    download.child = child
    log.info("download started", model=model, job=job)


def join(house: House, model: str, waiter: Waiter | None) -> Download | None:
    """Wait for a running download, and hear at once how far it is; return None if there is none."""
    download = house.downloads.join(model, waiter)
    if download is not None and download.last is not None and waiter is not None and waiter.progress:
        house.bus.send(waiter.peer, structs.replace(download.last, number=waiter.number))
    return download


def fetch_for_scheduler(house: House, model: str) -> None:
    """Download what requests wait for; a refusal is told to them."""
    try:
        fetch(house, model)
    except LemonbusError as problem:
        house.scheduler.fetched(model, None, problem.failure, house.loop.now())
        house.perform(house.scheduler.effects())


def progress(house: House, job: str, message: Progress, _payload: bytes) -> None:
    """A job has got further: tell who wants to know."""
    download = house.downloads.of_job(job)
    if download is not None:
        last = download.last
        if last is None or last.file != message.file or message.percent // 10 > last.percent // 10:
            log.info("downloading", model=download.model, file=message.file, percent=message.percent)
        download.last = message
        for waiter in download.waiters:
            if waiter.progress:
                house.bus.send(waiter.peer, structs.replace(message, number=waiter.number))


def result(house: House, job: str, message: Pulled | PullFailed, _payload: bytes) -> None:
    """A job says how it ended; its process's end makes it count."""
    jobs.release(house, job)
    download = house.downloads.of_job(job)
    if download is not None:
        download.result = message if isinstance(message, Pulled) else message.failure


def stop(house: House, model: str, why: Failure, then: Callable[[], None]) -> bool:
    """End a download, tell ``why`` to all who wait for it, then go on; return False if there is none."""
    download = house.downloads.running_for(model)
    if download is None or download.child is None:
        return False
    download.result = why
    download.then.append(then)
    house.processes.kill(download.child)
    return True


def _ended(house: House, job: str, why: str) -> None:
    download = house.downloads.ended(job, why)
    if download is not None and download.result is not None:
        outcome: Pulled | Failure = download.result
        if isinstance(outcome, Pulled) and download.pending:
            outcome = registration.complete_or_fail(house, download.pending) or outcome
        _tell(house, download, outcome)
        _go_on(house, download.model, outcome)
        for follows in download.then:
            follows()
        house.go_on()


def _tell(house: House, download: Download, outcome: Pulled | Failure) -> None:
    if isinstance(outcome, Failure):
        wanted = download.then or house.scheduler.closing
        say, event = (log.info, "download stopped") if wanted else (log.error, "download failed")
        say(event, model=download.model, reason=outcome.message, detail=outcome.detail)
    else:
        log.info("download complete", model=download.model)
    for waiter in download.waiters:
        jobs.tell(house, waiter.peer, waiter.number, outcome)


def _go_on(house: House, model: str, outcome: Pulled | Failure) -> None:
    """Load what was downloaded, if somebody waits for that."""
    options = house.options_after_fetch.pop(model, None)
    spec = None
    if model in house.scheduler.places and isinstance(outcome, Pulled):
        try:
            spec = target_of(house, model, options).spec
        except LemonbusError as problem:
            outcome = problem.failure
    failure = outcome if isinstance(outcome, Failure) else None
    house.scheduler.fetched(model, spec, failure, house.loop.now())


HANDLERS: Final[dict[type, Handler]] = {Progress: progress, Pulled: result, PullFailed: result}
