"""The upgrade: the keeper starts the installed release, and that release's supervisor takes over and answers the call."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from protocol import RELEASE
from protocol.failures import Code, Failure
from protocol.messages.upgrade import UpgradeReport, UpgradeServer
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.processes.gateway_process import GatewayProcess
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.loaded_code import LOADED_CODE
from supervisor.scheduler.view import SchedulerView

RETRY_S: Final = 10.0
"""Seconds after a failed takeover before a release that can no longer serve lets the installed one try again."""

log = logs.get_logger()


class UpgradeStarter(Protocol):
    """The parts of the keeper that upgrades need (``supervisor/lifecycle/keeper_client.py``)."""

    on_upgrade_begun: Callable[[], None]
    """Called when an upgrade begins, whether a call or a signal asked for it."""
    on_upgrade_refused: Callable[[str], None]
    """Called with the reason if no upgrade can begin."""
    on_upgrade_failed: Callable[[str], None]
    """Called with the reason when an upgrade has failed."""

    def upgrade(self) -> None:
        """Ask for an upgrade."""


class Upgrades:
    """The calls for an upgrade of one supervisor: the one to be replaced, or the one that has taken over."""

    def __init__(
        self,
        loop: Loop,
        keeper: UpgradeStarter,
        gateway: GatewayProcess,
        view: SchedulerView,
        calls: GatewayCalls,
    ) -> None:
        """Ask ``keeper`` for upgrades."""
        self._loop, self._keeper, self._gateway = loop, keeper, gateway
        self._view, self._calls = view, calls
        self._callers: list[tuple[str, int]] = []
        self._last_failure: Failure | None = None
        """Why the last upgrade failed. It may be the upgrade that this supervisor's predecessor made way for."""
        self._must_follow = False
        """Whether this release can no longer serve."""
        gateway.on_not_understood = self._cannot_serve
        keeper.on_upgrade_begun = self._begun
        keeper.on_upgrade_refused = self._refused
        keeper.on_upgrade_failed = self._failed

    def handlers(self) -> dict[type, Handler]:
        """Return the handler of the call."""
        return {UpgradeServer: self._requested}

    def _requested(self, peer: str, call: UpgradeServer, _payload: bytes) -> None:
        if self._view.closing:
            self._calls.refuse(peer, call.number, Failure(Code.DRAINING, "the server is ending"))
        elif not call.begun or (call.replaces == LOADED_CODE and self._last_failure is None):
            # An order to the previous supervisor may have been lost with it.
            self._callers.append((peer, call.number))
            self._keeper.upgrade()
        elif self._last_failure is not None and call.replaces in (None, LOADED_CODE):
            self._calls.refuse(peer, call.number, self._last_failure)
        else:
            report = UpgradeReport(RELEASE, os.getpid())
            self._gateway.when_serving(partial(self._calls.answer, peer, call.number, report))

    def _cannot_serve(self) -> None:
        """Let the installed release take over without being asked: only it can start gateways that are understood."""
        if not self._must_follow:
            self._must_follow = True
            log.error(
                "the installed release takes over: this release can no longer start its own gateways", release=RELEASE
            )
            self._follow()

    def _follow(self) -> None:
        if self._last_failure is None:
            self._keeper.upgrade()
        else:
            self._loop.call_later(RETRY_S, self._keeper.upgrade)

    def _begun(self) -> None:
        self._last_failure = None

    def _refused(self, why: str) -> None:
        self._refuse_callers(Failure(Code.OVERLOADED, f"no upgrade has begun: {why}", retry_after=1))

    def _failed(self, why: str) -> None:
        failure = self._last_failure = Failure(Code.INTERNAL, f"not upgraded, release {RELEASE} goes on: {why}")
        log.error("not upgraded: this release goes on", release=RELEASE, why=why)
        self._refuse_callers(failure)
        if self._must_follow:
            self._follow()

    def _refuse_callers(self, failure: Failure) -> None:
        callers, self._callers = self._callers, []
        for peer, number in callers:
            self._calls.reply(peer, number, failure)
