"""The call that asks what is newer: models at the hub, by a job process, and backends by their pinned releases, which needs no network."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from protocol.config.settings import Settings
from protocol.failures import Code, Failure
from protocol.messages.model_files import CheckpointSource
from protocol.messages.system_info import RecipeStatus
from protocol.messages.update_checks import (
    BackendUpdate,
    CheckUpdates,
    StartUpdateCheck,
    UpdatesChecked,
    UpdatesReport,
)
from protocol.models.checkpoints import HubCheckpoint, parse
from protocol.runtime.loop import Loop
from supervisor.backends.inventory import DEFAULT_BACKEND, UPDATE_REQUIRED
from supervisor.models.registry import ModelRegistry
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.jobs import Jobs

MODULE: Final = "workers.jobs.check_updates"
TIMEOUT_S: Final = 90.0
"""More than the job takes, except for a hub that answers byte by byte."""


def outdated_backends(recipes: Mapping[str, RecipeStatus]) -> list[BackendUpdate]:
    """Return the installed backends whose pinned release differs from them. Pure."""
    return [
        BackendUpdate(f"{recipe}:{name}", status.version or "")
        for recipe, found in recipes.items()
        for name, status in found.backends.items()
        if status.state == UPDATE_REQUIRED and name != DEFAULT_BACKEND
    ]


class UpdateChecks:
    """At most one check runs. Later callers wait for its result."""

    def __init__(
        self,
        settings: Settings,
        models: ModelRegistry,
        recipes: Callable[[Collection[str]], dict[str, RecipeStatus]],
        devices: Callable[[], Collection[str]],
        loop: Loop,
        jobs: Jobs,
        calls: GatewayCalls,
    ) -> None:
        """``recipes`` returns what a machine with such ``devices`` can run."""
        self._settings, self._models, self._recipes, self._devices = settings, models, recipes, devices
        self._loop, self._jobs, self._calls = loop, jobs, calls
        self._job = ""
        self._waiting: list[tuple[str, int]] = []
        self._unchecked: list[str] = []

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {CheckUpdates: self._ask, UpdatesChecked: self._checked}

    def _ask(self, peer: str, call: CheckUpdates, _payload: bytes) -> None:
        if self._settings.offline:
            raise Failure(Code.OFFLINE, "the setting `offline` forbids asking the hub", status=409).raised()
        self._waiting.append((peer, call.number))
        if not self._job:
            self._begin()

    def _begin(self) -> None:
        downloaded = [each for each in self._models.all_entries() if each.sources and self._models.downloaded(each)]
        wanted = {each.name: source for each in downloaded if (source := hub_source(each.sources)) is not None}
        self._unchecked = sorted({each.name for each in downloaded} - wanted.keys())
        if not wanted:
            self._settle(UpdatesChecked())
            return
        self._job = job = self._jobs.start(MODULE, self._ended, StartUpdateCheck(wanted))
        self._loop.call_later(TIMEOUT_S, lambda: self._jobs.kill(job) if job == self._job else None)

    def _checked(self, job: str, message: UpdatesChecked, _payload: bytes) -> None:
        self._jobs.dismiss(job)
        if job == self._job:
            self._job = ""
            self._settle(message)

    def _ended(self, job: str, why: str) -> None:
        if job == self._job:
            self._job = ""
            self._settle(Failure(Code.INTERNAL, f"the check for updates was interrupted ({why})"))

    def _settle(self, found: UpdatesChecked | Failure) -> None:
        result: UpdatesReport | Failure = (
            found
            if isinstance(found, Failure)
            else UpdatesReport(
                found.models, found.failed, self._unchecked, outdated_backends(self._recipes(self._devices()))
            )
        )
        waiting, self._waiting = self._waiting, []
        for peer, number in waiting:
            self._calls.reply(peer, number, result)


def hub_source(sources: list[CheckpointSource]) -> CheckpointSource | None:
    """Return the source of a model that is at a hub; None if there is none."""
    return next((each for each in sources if isinstance(parse(each.checkpoint), HubCheckpoint)), None)
