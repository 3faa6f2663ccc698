"""The supervisor's health report, for every health route. While no supervisor answers, it is what this process knows.

A monitor must not hang: it would take the server for dead although all its streams go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gateway.api.common.routes import HttpCaller
from gateway.requests.admission_states import AdmissionState
from protocol import RELEASE
from protocol.messages.health import GetHealth, HealthReport

if TYPE_CHECKING:
    from gateway.bus.session import SupervisorSession

RECOVERING: Final = "recovering"
"""The status of an old report: the supervisor that sent it has ended, or is silent."""
ANSWER_WAIT_S: Final = 5.0
"""Seconds to wait for the supervisor's report."""


def report_for(report: HealthReport, may_use: Callable[[str], bool]) -> HealthReport:
    """Return a report without the models that a caller may not use. Pure. ``may_use``: takes a registered name."""
    return msgspec.structs.replace(
        report,
        models=[each for each in report.models if may_use(each.spec.name)],
        loads=[each for each in report.loads if may_use(each.model)],
        troubled=[each for each in report.troubled if may_use(each.model)],
        model_problems=[each for each in report.model_problems if may_use(each.model)],
        deaths=[each for each in report.deaths if may_use(each.model)],
        former_models=[each for each in report.former_models if may_use(each)],
        downloads=[each for each in report.downloads if may_use(each)],
        nodes=[
            msgspec.structs.replace(each, models=[name for name in each.models if may_use(name)])
            for each in report.nodes
        ],
        default_model=report.default_model if may_use(report.default_model) else "",
        default_alias=report.default_alias if may_use(report.default_model) else "",
    )


class _Kept:
    """The last report of a gateway process."""

    def __init__(self, _session: SupervisorSession) -> None:
        self.report = HealthReport(RECOVERING, RELEASE, "", 0, 0.0, [], {})
        self.at = time.monotonic()


def health_report(caller: HttpCaller) -> HealthReport:
    """Return the supervisor's report, or the last one with the status ``recovering``.

    It has only the models that the caller's key may use. Raises a failure if the server starts or stops, or if no
    supervisor has answered for a long time.
    """
    return report_for(_whole_report(caller.session, caller.env), caller.context.may_use)


def _whole_report(session: SupervisorSession, env: dict[str, Any]) -> HealthReport:
    session.admission.check_answers()
    kept = session.part(_Kept)
    if session.admission.state is AdmissionState.RECOVERING:
        return _former_report(kept)
    with session.start_call(env, GetHealth) as call:
        report = call.report_within(HealthReport, ANSWER_WAIT_S)
    if report is None:
        return _former_report(kept)
    kept.report, kept.at = report, time.monotonic()
    return report


def _former_report(kept: _Kept) -> HealthReport:
    report, age = kept.report, time.monotonic() - kept.at
    reason = "the supervisor does not answer; requests wait for it, or for its successor, and streams go on"
    if report.pid:
        reason += f"; this report is {age:.0f} s old"
    return msgspec.structs.replace(
        report, status=RECOVERING, uptime=report.uptime + age, problems=[reason, *report.problems]
    )
