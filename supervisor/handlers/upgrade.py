"""The upgrade: the keeper starts the installed release, and that release's supervisor takes over and answers the call.

The order of the steps is the keeper's: the table in `supervisor/keeper/upgrade_steps.py`. This file has the supervisor's part.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from protocol import RELEASE
from protocol.failures import Code, Failure
from protocol.messages.upgrade import UpgradeReport, UpgradeServer
from protocol.runtime import logs
from protocol.runtime.loop import Loop, Timer
from protocol.state_table import next_state
from supervisor.processes.gateway_process import GatewayProcess
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.loaded_code import LOADED_CODE
from supervisor.scheduler.view import SchedulerView

RETRY_S: Final = 10.0
"""Seconds after a failed or refused upgrade before a release that can no longer serve lets the installed one try again."""

log = logs.get_logger()


class InstalledRelease(enum.Enum):
    """What a supervisor knows of the installed release, which may be its own."""

    UNTRIED = enum.auto()
    """No upgrade to it has failed."""
    FAILED = enum.auto()
    """The last upgrade has failed. It may be the one that this supervisor's predecessor made way for."""
    NEEDED = enum.auto()
    """Only it can serve: the keeper was asked to let it take over."""
    RETRIED = enum.auto()
    """Only it can serve, and the last upgrade has failed: the keeper is asked again after a pause."""


class InstalledReleaseEvent(enum.Enum):
    """What changes that."""

    BEGUN = enum.auto()
    """An upgrade has begun, whether a call, a signal or this supervisor asked for it."""
    FAILED = enum.auto()
    CANNOT_SERVE = enum.auto()
    """The gateways that this release starts are of the installed one, and speak another version of the protocol."""


_STATE, _EVENT = InstalledRelease, InstalledReleaseEvent

TRANSITIONS: Final[dict[InstalledRelease, dict[InstalledReleaseEvent, InstalledRelease]]] = {
    _STATE.UNTRIED: {
        _EVENT.BEGUN: _STATE.UNTRIED,
        _EVENT.FAILED: _STATE.FAILED,
        _EVENT.CANNOT_SERVE: _STATE.NEEDED,
    },
    _STATE.FAILED: {
        _EVENT.BEGUN: _STATE.UNTRIED,
        _EVENT.FAILED: _STATE.FAILED,
        _EVENT.CANNOT_SERVE: _STATE.RETRIED,
    },
    _STATE.NEEDED: {_EVENT.BEGUN: _STATE.NEEDED, _EVENT.FAILED: _STATE.RETRIED},
    _STATE.RETRIED: {_EVENT.BEGUN: _STATE.NEEDED, _EVENT.FAILED: _STATE.RETRIED},
}

_HAS_FAILED: Final = frozenset({_STATE.FAILED, _STATE.RETRIED})
_CANNOT_SERVE: Final = frozenset({_STATE.NEEDED, _STATE.RETRIED})


class CallAnswer(enum.Enum):
    """What a call for an upgrade gets."""

    ORDER = enum.auto()
    """The keeper is asked; the next supervisor answers the call."""
    FAILURE = enum.auto()
    """The reason why the last upgrade has failed."""
    REPORT = enum.auto()
    """This release, as soon as its gateways serve."""


def answer_to(call: UpgradeServer, release: InstalledRelease) -> CallAnswer:
    """Return what a call gets. Pure."""
    failed = release in _HAS_FAILED
    if not call.begun or (call.replaces == LOADED_CODE and not failed):
        # An order to the previous supervisor may have been lost with it.
        return CallAnswer.ORDER
    return CallAnswer.FAILURE if failed and call.replaces in (None, LOADED_CODE) else CallAnswer.REPORT


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
        self._installed = InstalledRelease.UNTRIED
        self._failure = Failure(Code.INTERNAL, "")
        """Why the last upgrade failed, if it did."""
        self._pause: Timer | None = None
        """Before this supervisor itself asks for the next upgrade."""
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
            return
        match answer_to(call, self._installed):
            case CallAnswer.ORDER:
                self._callers.append((peer, call.number))
                self._keeper.upgrade()
            case CallAnswer.FAILURE:
                self._calls.refuse(peer, call.number, self._failure)
            case CallAnswer.REPORT:
                report = UpgradeReport(RELEASE, os.getpid())
                self._gateway.when_serving(partial(self._calls.answer, peer, call.number, report))

    def _cannot_serve(self) -> None:
        """Let the installed release take over without being asked: only it can start gateways that are understood."""
        if self._installed in _CANNOT_SERVE:
            return
        log.error(
            "the installed release takes over: this release can no longer start its own gateways", release=RELEASE
        )
        self._transition(InstalledReleaseEvent.CANNOT_SERVE)
        if self._installed is InstalledRelease.NEEDED:
            self._keeper.upgrade()
        else:
            self._retry()

    def _begun(self) -> None:
        self._transition(InstalledReleaseEvent.BEGUN)

    def _refused(self, why: str) -> None:
        self._refuse_callers(Failure(Code.OVERLOADED, f"no upgrade has begun: {why}", retry_after=1))
        if self._installed in _CANNOT_SERVE:
            # The last upgrade may still end well with gateways of the former release. Then nothing else asks again.
            self._retry()

    def _failed(self, why: str) -> None:
        self._failure = Failure(Code.INTERNAL, f"not upgraded, release {RELEASE} goes on: {why}")
        log.error("not upgraded: this release goes on", release=RELEASE, reason=why)
        self._refuse_callers(self._failure)
        self._transition(InstalledReleaseEvent.FAILED)
        if self._installed is InstalledRelease.RETRIED:
            self._retry()

    def _retry(self) -> None:
        """Ask again after a pause; refusals during the pause do not add another attempt."""
        if self._pause is None:
            self._pause = self._loop.call_later(RETRY_S, self._pause_over)

    def _pause_over(self) -> None:
        self._pause = None
        self._keeper.upgrade()

    def _transition(self, event: InstalledReleaseEvent) -> None:
        self._installed = next_state(TRANSITIONS, self._installed, event)

    def _refuse_callers(self, failure: Failure) -> None:
        callers, self._callers = self._callers, []
        for peer, number in callers:
            self._calls.reply(peer, number, failure)
