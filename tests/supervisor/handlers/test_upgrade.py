"""The answers to calls for an upgrade, for each report of the keeper."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from protocol import RELEASE
from protocol.failures import Code, Failure
from protocol.messages.peers import LoadedCode
from protocol.messages.upgrade import UpgradeReport, UpgradeServer
from protocol.runtime.loop import Timer
from supervisor.handlers.upgrade import RETRY_S, CallAnswer, InstalledRelease, Upgrades, answer_to
from supervisor.runtime.loaded_code import LOADED_CODE

PEER = "g1"


class RecordedKeeper:
    """Records its orders; the test decides the answers."""

    on_upgrade_begun: Callable[[], None]
    on_upgrade_refused: Callable[[str], None]
    on_upgrade_failed: Callable[[str], None]

    def __init__(self) -> None:
        self.asked = 0

    def upgrade(self) -> None:
        self.asked += 1


class UpgradeCalls:
    """The calls of one gateway: number → its answer."""

    def __init__(self) -> None:
        self.keeper = RecordedKeeper()
        self.answers: dict[int, Code | UpgradeReport] = {}
        self.gateway: Any = SimpleNamespace(when_serving=lambda callback: callback(), on_not_understood=None)
        self.later: list[tuple[float, Callable[[], None]]] = []
        calls: Any = SimpleNamespace(answer=self._answer, refuse=self._refuse, reply=self._refuse)
        loop: Any = SimpleNamespace(call_later=self._call_later)
        view: Any = SimpleNamespace(closing=False)
        self._handler = Upgrades(loop, self.keeper, self.gateway, view, calls).handlers()[UpgradeServer]

    def _answer(self, _peer: str, number: int, report: UpgradeReport) -> None:
        self.answers[number] = report

    def _refuse(self, _peer: str, number: int, failure: Failure) -> None:
        self.answers[number] = failure.code

    def ask(self, number: int, **fields: Any) -> None:
        self._handler(PEER, UpgradeServer(number, **fields), b"")

    def _call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        self.later.append((seconds, callback))
        return Timer(seconds, callback)

    def pass_pause(self) -> None:
        """Let the time of the one callback come that waits."""
        ((seconds, callback),) = self.later
        assert seconds == RETRY_S
        self.later.clear()
        callback()

    def asked_later(self, number: int) -> Code | UpgradeReport:
        self.ask(number, begun=True)
        return self.answers[number]


@pytest.fixture
def calls() -> UpgradeCalls:
    return UpgradeCalls()


SERVES = UpgradeReport(RELEASE, os.getpid())


def test_a_failure_is_reported_until_another_upgrade_begins(calls: UpgradeCalls) -> None:
    calls.ask(1)
    calls.keeper.on_upgrade_failed("it cannot be imported")
    assert calls.answers == {1: Code.INTERNAL}
    assert calls.asked_later(2) == Code.INTERNAL
    calls.keeper.on_upgrade_begun()  # by a signal
    assert calls.asked_later(3) == SERVES
    assert calls.keeper.asked == 1


def test_an_order_that_was_lost_with_a_supervisor_is_given_again(calls: UpgradeCalls) -> None:
    calls.ask(1, begun=True, replaces=LOADED_CODE)
    assert (calls.keeper.asked, calls.answers) == (1, {})
    calls.keeper.on_upgrade_failed("it cannot be imported")
    assert calls.answers == {1: Code.INTERNAL}
    calls.ask(2, begun=True, replaces=LOADED_CODE)
    assert (calls.keeper.asked, calls.answers[2]) == (1, Code.INTERNAL), "its upgrade is the one that has failed"
    calls.ask(3, begun=True, replaces=LoadedCode(RELEASE, "loaded before"))
    assert (calls.keeper.asked, calls.answers[3]) == (1, SERVES)


def test_an_upgrade_that_does_not_begin_is_not_a_failed_one(calls: UpgradeCalls) -> None:
    calls.ask(1)
    calls.keeper.on_upgrade_refused("the last one is not complete yet")
    assert calls.answers == {1: Code.OVERLOADED}
    assert calls.asked_later(2) == SERVES


def test_a_release_that_cannot_serve_any_more_lets_the_installed_one_take_over_again_and_again(
    calls: UpgradeCalls,
) -> None:
    for _ in range(2):  # each of its gateways
        calls.gateway.on_not_understood()
    assert (calls.keeper.asked, calls.later) == (1, [])
    for asked in (2, 3):
        calls.keeper.on_upgrade_begun()
        calls.keeper.on_upgrade_failed("it cannot be imported")
        calls.pass_pause()
        assert calls.keeper.asked == asked


def test_a_release_that_goes_on_after_a_failed_upgrade_waits_before_the_next(calls: UpgradeCalls) -> None:
    calls.keeper.on_upgrade_failed("its gateways did not serve")
    calls.gateway.on_not_understood()
    assert calls.keeper.asked == 0
    calls.pass_pause()
    assert calls.keeper.asked == 1


@pytest.mark.parametrize("failed", [False, True])
def test_a_release_that_cannot_serve_asks_again_after_a_refusal(calls: UpgradeCalls, *, failed: bool) -> None:
    if failed:
        calls.keeper.on_upgrade_failed("its gateways did not serve")
    calls.gateway.on_not_understood()
    if failed:
        calls.pass_pause()
    for asked in (2, 3):
        for _ in range(2):  # its own order and a call's: however many are refused, one follows
            calls.keeper.on_upgrade_refused("the last one is not complete yet")
        calls.pass_pause()
        assert calls.keeper.asked == asked


OTHER_CODE = LoadedCode(RELEASE, "loaded before")


@pytest.mark.parametrize(
    ("call", "release", "expected"),
    [
        (UpgradeServer(1), InstalledRelease.UNTRIED, CallAnswer.ORDER),
        (UpgradeServer(1), InstalledRelease.FAILED, CallAnswer.ORDER),
        (UpgradeServer(1, replaces=LOADED_CODE), InstalledRelease.RETRIED, CallAnswer.ORDER),
        (UpgradeServer(1, begun=True), InstalledRelease.UNTRIED, CallAnswer.REPORT),
        (UpgradeServer(1, begun=True), InstalledRelease.NEEDED, CallAnswer.REPORT),
        (UpgradeServer(1, begun=True), InstalledRelease.FAILED, CallAnswer.FAILURE),
        (UpgradeServer(1, begun=True, replaces=LOADED_CODE), InstalledRelease.UNTRIED, CallAnswer.ORDER),
        (UpgradeServer(1, begun=True, replaces=LOADED_CODE), InstalledRelease.RETRIED, CallAnswer.FAILURE),
        (UpgradeServer(1, begun=True, replaces=OTHER_CODE), InstalledRelease.UNTRIED, CallAnswer.REPORT),
        (UpgradeServer(1, begun=True, replaces=OTHER_CODE), InstalledRelease.FAILED, CallAnswer.REPORT),
    ],
)
def test_what_a_call_is_answered(call: UpgradeServer, release: InstalledRelease, expected: CallAnswer) -> None:
    assert answer_to(call, release) is expected
