"""``/internal/upgrade``: the release that is installed now takes over, and no request is interrupted."""

from __future__ import annotations

from typing import ClassVar, Literal

import falcon
import msgspec

from gateway.api.common.request_fields import optional_body
from gateway.bus.session import SupervisorSession
from protocol.failures import invalid
from protocol.messages.peers import LoadedCode
from protocol.messages.upgrade import UpgradeReport, UpgradeServer


class UpgradeAnswer(msgspec.Struct):
    """What serves now; while a supervisor takes over that speaks another version of the protocol, only that."""

    status: Literal["success", "taking_over"]
    release: str | None
    pid: int | None
    former_release: str | None = None
    """What served when the upgrade was asked for; None in the answer to a GET."""


class UpgradeResource:
    """Asks for a supervisor of the installed release, and what came of it."""

    changes: ClassVar[frozenset[str]] = frozenset({"GET", "POST"})

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Say what serves now; 500 if the last upgrade has failed since the present supervisor serves."""
        _answer(resp, self._session.call(req.env, lambda number: UpgradeServer(number, begun=True), UpgradeReport))

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Upgrade, and wait until the new supervisor answers; 500 if it cannot start: then nothing has changed.

        A supervisor that speaks another version of the protocol does not answer this process, but that of the new release:
        202 says that it takes over, and a GET waits for it and says what came of it.
        """
        for unknown in optional_body(req, self._session.settings):
            raise invalid(f"`{unknown}` is no field of an upgrade; it has none", unknown)
        former = self._session.supervisor_code
        report = self._session.call(req.env, lambda number: UpgradeServer(number, replaces=former), UpgradeReport)
        _answer(resp, report, former)


def _answer(resp: falcon.Response, report: UpgradeReport, former: LoadedCode | None = None) -> None:
    resp.content_type = falcon.MEDIA_JSON
    former_release = former.release if former is not None else None
    if report.release:
        answer = UpgradeAnswer("success", report.release, report.pid, former_release)
    else:
        answer = UpgradeAnswer("taking_over", None, None, former_release)
        resp.status = falcon.HTTP_202
    resp.data = msgspec.json.encode(answer)
