"""``POST /internal/upgrade``: the release that is installed now takes over, and no request is interrupted."""

from __future__ import annotations

from typing import ClassVar

import falcon
import msgspec

from gateway.api.common.request_fields import optional_body
from gateway.bus.session import SupervisorSession
from protocol.failures import invalid
from protocol.messages.upgrade import UpgradeReport, UpgradeServer


class UpgradeAnswer(msgspec.Struct):
    """What serves now."""

    status: str
    release: str
    pid: int


class UpgradeResource:
    """Asks for a supervisor of the installed release."""

    changes: ClassVar[frozenset[str]] = frozenset({"POST"})

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Upgrade, and wait until the new supervisor answers; 500 if it cannot start: then nothing has changed."""
        for unknown in optional_body(req, self._session.settings):
            raise invalid(f"`{unknown}` is no field of an upgrade; it has none", unknown)
        report = self._session.call(req.env, UpgradeServer, UpgradeReport)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(UpgradeAnswer("success", report.release, report.pid))
