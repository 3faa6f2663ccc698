"""``POST /internal/reload``: reads the configuration again, and applies the changes or only shows them."""

from __future__ import annotations

from typing import Literal

import msgspec

from gateway.api.common.operations import BODY, STORAGE, UNSUPPORTED
from gateway.api.common.routes import HttpCaller, route
from protocol.messages.reload import ReloadReport, ReloadSettings, SettingChange


class ReloadRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Whether to apply what has changed."""

    dry_run: bool = False


class ReloadAnswer(msgspec.Struct):
    """The changes; with ``dry_run``, those that would be made."""

    status: Literal["success"]
    applied: bool
    changes: list[SettingChange]
    warnings: list[str]
    repeated: bool
    """Whether the supervisor was replaced meanwhile, so that there may have been more changes, which the log has."""


@route(
    "POST",
    "/internal/reload",
    changes=True,
    body_required=False,
    failures=BODY | STORAGE | UNSUPPORTED,
    examples={"only show": {"dry_run": True}},
)
def reload_configuration(caller: HttpCaller, request: ReloadRequest) -> ReloadAnswer:
    """Reads the configuration again, and applies what has changed.

    A configuration that is wrong is answered with 400, and changes nothing.
    """
    report = caller.ask(lambda number: ReloadSettings(number, request.dry_run), ReloadReport)
    return ReloadAnswer("success", report.applied, report.changes, report.warnings, report.repeated)
