"""``/internal/upgrade``: the installed release takes over without interrupting a request."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from gateway.api.common.operations import BODY, UNSUPPORTED
from gateway.api.common.routes import HttpCaller, Nothing, route
from protocol.messages.upgrade import UpgradeReport, UpgradeServer

_PATH: Final = "/internal/upgrade"


class UpgradeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """An upgrade has no fields."""


class UpgradeAnswer(msgspec.Struct):
    """What serves now. While a supervisor with another version of the protocol takes over, only that is known."""

    status: Literal["success", "taking_over"]
    release: str | None
    pid: int | None
    former_release: str | None = None
    """What served when the upgrade was requested; None in the answer to a GET."""


def _answer(report: UpgradeReport, former: str | None = None) -> UpgradeAnswer:
    if report.release:
        return UpgradeAnswer("success", report.release, report.pid, former)
    return UpgradeAnswer("taking_over", None, None, former)


def _status_of(answer: UpgradeAnswer) -> int:
    return 202 if answer.status == "taking_over" else 200


@route("GET", _PATH, changes=True, status_of=_status_of, other_statuses=(202,))
def show_upgrade(caller: HttpCaller, _request: Nothing) -> UpgradeAnswer:
    """Says what serves now; 500 if the last upgrade has failed since the present supervisor serves."""
    return _answer(caller.ask(lambda number: UpgradeServer(number, begun=True), UpgradeReport))


@route(
    "POST",
    _PATH,
    changes=True,
    status_of=_status_of,
    other_statuses=(202,),
    body_required=False,
    failures=BODY | UNSUPPORTED,
)
def upgrade_server(caller: HttpCaller, _request: UpgradeRequest) -> UpgradeAnswer:
    """Lets the release that is installed now take over; 500 if it cannot start, and nothing has changed.

    It waits until the new supervisor answers. One that speaks another version of the protocol answers only processes of
    the new release: 202 says that it takes over, and a GET waits for it and says what came of it.
    """
    former = caller.session.supervisor_code
    report = caller.ask(lambda number: UpgradeServer(number, replaces=former), UpgradeReport)
    return _answer(report, former.release if former is not None else None)
