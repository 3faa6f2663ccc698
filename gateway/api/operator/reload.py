"""``POST /internal/reload``: the configuration is read again, and what has changed is applied or only shown."""

from __future__ import annotations

from typing import Any, ClassVar

import falcon
import msgspec

from gateway.api.common.request_fields import flag_of, optional_body
from gateway.bus.session import SupervisorSession
from protocol.failures import invalid
from protocol.messages.reload import ReloadReport, ReloadSettings


class ReloadAnswer(msgspec.Struct):
    """What has changed; with ``dry_run`` what would change."""

    status: str
    applied: bool
    changes: list[dict[str, Any]]
    warnings: list[str]
    repeated: bool
    """Whether the supervisor was replaced meanwhile: there may have been more changes, which the log has."""


class ReloadResource:
    """Asks the supervisor to read the configuration."""

    changes: ClassVar[frozenset[str]] = frozenset({"POST"})

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Reload. A configuration that is wrong is answered with 400, and changes nothing."""
        body = optional_body(req, self._session.settings)
        for unknown in body.keys() - {"dry_run"}:
            raise invalid(f"`{unknown}` is no field of a reload; there is: dry_run", unknown)
        dry_run = flag_of(body, "dry_run")
        report = self._session.call(req.env, lambda number: ReloadSettings(number, dry_run), ReloadReport)
        changes = [msgspec.to_builtins(change) for change in report.changes]
        answer = ReloadAnswer("success", report.applied, changes, report.warnings, report.repeated)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(answer)
