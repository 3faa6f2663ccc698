"""``POST /internal/reload``: the configuration is read again, and what has changed is applied or only shown."""

from __future__ import annotations

from typing import Literal

import msgspec

from gateway.api.common.operations import BODY, UNSUPPORTED
from gateway.api.common.routes import HttpCaller, route
from protocol.messages.reload import ReloadReport, ReloadSettings, SettingChange


class ReloadRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Whether to apply what has changed."""

    dry_run: bool = False


class ReloadAnswer(msgspec.Struct):
    """What has changed; with ``dry_run`` what would change."""

    status: Literal["success"]
    applied: bool
    changes: list[SettingChange]
    warnings: list[str]
    repeated: bool
    """Whether the supervisor was replaced meanwhile: there may have been more changes, which the log has."""


@route(
    "POST",
    "/internal/reload",
    changes=True,
    body_required=False,
    failures=BODY | UNSUPPORTED,
    examples={"only show": {"dry_run": True}},
)
def reload_configuration(caller: HttpCaller, request: ReloadRequest) -> ReloadAnswer:
    """Reads the configuration again, and applies what has changed.

    A configuration that is wrong is answered with 400, and changes nothing.
    """
    report = caller.ask(lambda number: ReloadSettings(number, request.dry_run), ReloadReport)
    return ReloadAnswer("success", report.applied, report.changes, report.warnings, report.repeated)
