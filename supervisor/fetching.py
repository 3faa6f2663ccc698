"""Downloads: a job process a model, and whoever waits for it."""

from __future__ import annotations

from functools import partial
from typing import Final

from msgspec import structs

from protocol import ids, logs
from protocol.admin import Progress, Pulled, PullFailed, Pulling
from protocol.failures import Code, Failure, LemonbusError
from supervisor.downloads import Waiter
from supervisor.house import Handler, House
from supervisor.requests import target_of

log = logs.get()


def fetch(house: House, model: str, waiter: Waiter | None = None) -> None:
    """Download a model, or join the download that runs; raises ``offline``."""
    if house.downloads.join(model, waiter):
        return
    if house.settings.offline:
        reason = f"Model {model} is not on this machine and the server is offline"
        raise Failure(Code.OFFLINE, reason, model=model).raised()
    job = ids.peer_id("job")
    download = house.downloads.begin(job, model, house.models.sources(model), waiter)
    log.info("download started", model=model, job=job)
    ended = partial(_ended, house, job)
    download.child = house.processes.start("job", "workers.jobs.pull", ended, {"LEMONBUS_PEER": job})


def fetch_for_scheduler(house: House, model: str) -> None:
    """Download what requests wait for; a refusal is told to them."""
    try:
        fetch(house, model)
    except LemonbusError as problem:
        house.scheduler.fetched(model, None, problem.failure)
        house.perform(house.scheduler.effects())


def begin(house: House, job: str) -> None:
    """A job's process is there: tell it what to fetch."""
    download = house.downloads.of_job(job)
    if download:
        house.bus.send(job, Pulling(download.model, download.sources, house.settings.cache_dir))


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
    download = house.downloads.of_job(job)
    if download is not None:
        download.result = message if isinstance(message, Pulled) else message.failure


def _ended(house: House, job: str, why: str) -> None:
    house.peers.remove(job)
    house.bus.forget(job)
    download = house.downloads.ended(job, why)
    if download is not None and download.result is not None:
        outcome: Pulled | Failure = download.result
        spec = None
        options = house.options_after_fetch.pop(download.model, None)
        if isinstance(outcome, Pulled):
            try:
                spec = target_of(house, download.model, options).spec
            except LemonbusError as problem:
                outcome = problem.failure
        if isinstance(outcome, Failure):
            log.error("download failed", model=download.model, reason=outcome.message, detail=outcome.detail)
        else:
            log.info("download complete", model=download.model)
        for waiter in download.waiters:
            if isinstance(outcome, Failure):
                house.refuse(waiter.peer, waiter.number, outcome)
            else:
                house.answer(waiter.peer, waiter.number, outcome)
        house.scheduler.fetched(download.model, spec, outcome if isinstance(outcome, Failure) else None)
        house.go_on()
    house.on_quiet()


HANDLERS: Final[dict[type, Handler]] = {Progress: progress, Pulled: result, PullFailed: result}
