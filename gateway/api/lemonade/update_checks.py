"""``models/check-updates``: which downloaded models and installed backends have something newer elsewhere."""

from __future__ import annotations

from typing import Literal

import msgspec

from gateway.api.common.operations import CONFLICT
from gateway.api.common.routes import HttpCaller, Nothing, route
from protocol.messages.update_checks import BackendUpdate, CheckUpdates, UpdatesReport


class UpdatesAnswer(msgspec.Struct):
    """What is newer elsewhere. Nothing is downloaded."""

    status: Literal["success", "failed"]
    """`failed`: a model could not be checked."""
    updates_available: int
    """How many models have different files at the hub."""
    models: list[str]
    failed_models: dict[str, str]
    """Model → why it could not be checked."""
    unchecked_models: list[str]
    """Downloaded models that come from no hub."""
    backends: list[BackendUpdate]
    """Installed backends whose pinned release differs from them."""


@route("POST", "models/check-updates", changes=True, action="check for updates", failures=CONFLICT)
def check_updates(caller: HttpCaller, _request: Nothing) -> UpdatesAnswer:
    """Compares downloaded models with the hub, and installed backends with their pinned releases.

    A model has an update if a file that a pull would fetch differs from the one here; other files of its repository do not count.
    """
    report = caller.ask(CheckUpdates, UpdatesReport)
    return UpdatesAnswer(
        status="failed" if report.failed else "success",
        updates_available=len(report.models),
        models=report.models,
        failed_models=report.failed,
        unchecked_models=report.unchecked,
        backends=report.backends,
    )
