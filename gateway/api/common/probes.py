"""``/live`` with its other names, ``/health`` and ``/readyz``: probes for process monitors and load balancers, without a version prefix.

Only ``/readyz`` may ask the supervisor: until the server is ready for the first time, and about a single model.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from gateway.api.common.operations import NO_MODEL
from gateway.api.common.routes import HttpCaller, Nothing, route
from gateway.http.request_context import LIVENESS_PATHS
from gateway.requests.admission_states import AdmissionState
from protocol.failures import Code, LemonbusError
from protocol.messages.readiness import AwaitedModel, GetReadiness, ReadinessReport

_ANSWER_WAIT_S: Final = 0.7
"""Seconds to wait for the supervisor's report. A probe of Kubernetes has failed after one second, unless its manifest says otherwise."""
_MAX_KEPT: Final = 256
"""Models whose last report is kept."""


class Probe(msgspec.Struct):
    """The server answers."""

    status: Literal["ok", "recovering"]
    """``recovering``: requests are accepted, and wait until the next supervisor has taken over."""


@route("GET", LIVENESS_PATHS[0], also=LIVENESS_PATHS[1:])
def show_liveness(_caller: HttpCaller, _request: Nothing) -> Probe:
    """Whether this process answers."""
    return Probe("ok")


@route("GET", "/health")
def show_health(caller: HttpCaller, _request: Nothing) -> Probe:
    """Whether this process accepts requests: 503 while it does not.

    Requests that wait for a new supervisor are accepted.
    """
    caller.session.admission.check_readiness()
    return Probe("recovering" if caller.session.admission.state is AdmissionState.RECOVERING else "ok")


class ReadinessQuery(msgspec.Struct):
    """Ask about one model."""

    model: str | msgspec.UnsetType = msgspec.UNSET


class Readiness(msgspec.Struct):
    """Whether requests should be sent here."""

    status: Literal["ready", "not_ready", "starting", "draining", "drained", "supervisor_lost"]
    reason: str
    """Why they should not; empty if they should."""
    models: list[AwaitedModel]
    """The models that are awaited: those for the start, or the one that was asked about."""


def _status_of(answer: Readiness) -> int:
    return 200 if answer.status == "ready" else 503


@route("GET", "/readyz", status_of=_status_of, other_statuses=(503,), failures=NO_MODEL)
def show_readiness(caller: HttpCaller, query: ReadinessQuery) -> Readiness:
    """Whether requests should be sent here: 503 with the reason if not.

    After its start, a server is ready when each model that is loaded at the start is ready or has failed for good. From
    then on it is not ready only while it drains, or without a supervisor. With `model`, it is ready if the engine of
    this model answers.
    """
    admission = caller.session.admission
    try:
        admission.check_readiness()
    except LemonbusError as problem:
        return _not_accepting(problem)
    model = query.model or ""
    if not model and admission.server.ready:
        return Readiness("ready", "", [])
    report = _report(caller, model)
    if report is None:
        return Readiness("supervisor_lost", "the supervisor does not answer", [])
    if report.ready:
        return Readiness("ready", "", [])
    names = ", ".join(each.model for each in report.awaited)
    return Readiness("not_ready", f"not ready: {names}", report.awaited)


def _not_accepting(problem: LemonbusError) -> Readiness:
    """Return the answer of a process that accepts no requests, for the failure that says why."""
    message = problem.failure.message
    match problem.failure.code:
        case Code.STARTING:
            return Readiness("starting", message, [])
        case Code.DRAINED:
            return Readiness("drained", message, [])
        case Code.DRAINING:
            return Readiness("draining", message, [])
        case _:
            return Readiness("supervisor_lost", message, [])


class _Kept:
    """The last reports of a gateway process."""

    def __init__(self, _session: object) -> None:
        self.reports: dict[str, ReadinessReport] = {}


def _report(caller: HttpCaller, model: str) -> ReadinessReport | None:
    """Return the supervisor's report, or the last one if none answers; None if there was none."""
    kept = caller.session.part(_Kept).reports
    if caller.session.admission.state is AdmissionState.RECOVERING and model in kept:
        return kept[model]
    with caller.session.start_call(caller.env, lambda number: GetReadiness(number, model)) as call:
        report = call.report_within(ReadinessReport, _ANSWER_WAIT_S)
    if report is None:
        return kept.get(model)
    kept.pop(model, None)
    while len(kept) >= _MAX_KEPT:
        del kept[next(iter(kept))]
    kept[model] = report
    return report
