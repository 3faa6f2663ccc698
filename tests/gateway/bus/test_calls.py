"""Calls whose supervisor dies: what each call declares, and what a second answer means."""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

import protocol
from gateway.bus.calls import OUTCOME_UNKNOWN
from gateway.bus.session import SupervisorSession
from gateway.requests.spool import Spool
from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.calls import REPETITIONS, CallResult
from protocol.messages.health import GetHealth
from protocol.messages.log_stream import FollowLogs, LogBatch, LogEntry, LogSnapshot
from protocol.messages.model_files import DeleteModel, PullModel
from protocol.messages.models import LoadModel, UnloadModel
from protocol.messages.peers import Shutdown
from protocol.messages.reload import ReloadSettings
from protocol.messages.responses import DeleteResponse, StoreResponse
from protocol.messages.upgrade import UpgradeReport, UpgradeServer
from protocol.messages.work import Refused
from protocol.wire import envelope
from tests.gateway.app_client import SilentBus

README = Path(protocol.__file__).parent / "README.md"


def calls_of_the_protocol() -> set[str]:
    """Return the names in the tables of calls in the protocol's specification."""
    tables = re.findall(r"\| call \| report \|\n\|---\|---\|\n((?:\|.*\n)+)", README.read_text("utf-8"))
    first_cells = [row.split("|")[1] for table in tables for row in table.splitlines()]
    names = {name for cell in first_cells for name in re.findall(r"`([A-Z]\w+)`", cell)}
    return names | {"GetMetrics"}


def test_every_call_declares_whether_it_is_repeated() -> None:
    for module in pkgutil.walk_packages(protocol.__path__, "protocol."):
        importlib.import_module(module.name)
    calls = calls_of_the_protocol()
    assert len(calls) > 20
    assert {cls.__name__ for cls in REPETITIONS} == calls


class RecoveringSession:
    """A session on a fake bus whose supervisor a test replaces."""

    def __init__(self, folder: Path) -> None:
        self.bus = SilentBus()
        self.session = SupervisorSession("g1", Settings(), Spool(folder, "g1", 1 << 20))
        self.handlers = self.session.open(self.bus)
        self.session.connect()
        self.session.welcomed(1)

    def replace(self) -> list[Any]:
        """End the supervisor, start another one, and return the messages that it gets."""
        self.bus.sent.clear()
        self.session.supervisor_ended()
        self.session.welcomed(1)
        return self.bus.sent

    def answer(self, number: int, report: Any) -> None:
        self.handlers.on_message(CallResult(number), envelope.pack_payload(report))

    def refuse(self, number: int, code: Code) -> None:
        self.handlers.on_message(Refused(number, 0, Failure(code, "refused")), b"")


@pytest.fixture
def recovering(tmp_path: Path) -> RecoveringSession:
    return RecoveringSession(tmp_path)


def test_a_call_is_made_again_and_answered_once(recovering: RecoveringSession) -> None:
    call = recovering.session.start_call({}, lambda number: PullModel(number, "tiny", progress=True), payload=b"x")
    assert recovering.replace() == [PullModel(call.number, "tiny", progress=True)]
    assert recovering.replace() == [PullModel(call.number, "tiny", progress=True)]
    recovering.answer(call.number, "pulled")
    assert isinstance(call.next(0), CallResult)
    assert envelope.unpack_payload(call.report, str) == "pulled"
    call.close()
    assert recovering.replace() == []


def test_a_call_that_may_have_been_carried_out_says_so(recovering: RecoveringSession) -> None:
    call = recovering.session.start_call({}, lambda number: DeleteModel(number, "tiny"))
    assert recovering.replace() == []
    with pytest.raises(LemonbusError) as refusal:
        call.next(0)
    assert refusal.value.failure == OUTCOME_UNKNOWN
    assert refusal.value.failure.http_status == 503


def test_a_reload_is_made_again_and_says_so(recovering: RecoveringSession) -> None:
    calls = [recovering.session.start_call({}, partial(ReloadSettings, dry_run=dry_run)) for dry_run in (False, True)]
    applied, dry_run = (each.number for each in calls)
    assert recovering.replace() == [ReloadSettings(applied, repeated=True), ReloadSettings(dry_run, dry_run=True)]


def test_a_call_that_no_supervisor_has_had_is_sent_as_it_is(recovering: RecoveringSession) -> None:
    recovering.session.supervisor_ended()
    calls = [
        recovering.session.start_call({}, lambda number: DeleteModel(number, "tiny")),
        recovering.session.start_call({}, lambda number: LoadModel(number, "tiny", unless_loaded=True)),
    ]
    assert recovering.replace() == [each.message for each in calls]
    recovering.refuse(calls[1].number, Code.CONFLICT)
    with pytest.raises(LemonbusError, match="refused"):
        calls[1].next(0)


def test_a_repeated_load_is_not_refused_for_its_own_success(recovering: RecoveringSession) -> None:
    call = recovering.session.start_call({}, lambda number: LoadModel(number, "tiny", unless_loaded=True))
    assert recovering.replace() == [LoadModel(call.number, "tiny")]


@pytest.mark.parametrize(
    ("message", "code", "report"),
    [
        (UnloadModel(0, "tiny"), Code.NOT_LOADED, ["tiny"]),
        (DeleteResponse(0, "resp_1"), Code.NOT_FOUND, None),
        (StoreResponse(0, "resp_1"), Code.CONFLICT, None),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_refusal_that_says_it_is_done_is_the_answer_to_a_repeated_call_alone(
    recovering: RecoveringSession, message: msgspec.Struct, code: Code, report: Any
) -> None:
    def start() -> Any:
        return recovering.session.start_call({}, lambda n: msgspec.structs.replace(message, number=n))

    first = start()
    recovering.refuse(first.number, code)
    with pytest.raises(LemonbusError):
        first.next(0)
    first.close()
    repeated = start()
    assert len(recovering.replace()) == 1
    recovering.refuse(repeated.number, code)
    assert isinstance(repeated.next(0), CallResult)
    assert envelope.unpack_payload(repeated.report, type(report)) == report


def test_an_upgrade_is_answered_when_a_supervisor_of_another_version_takes_over(recovering: RecoveringSession) -> None:
    upgrade = recovering.session.start_call({}, UpgradeServer)
    load = recovering.session.start_call({}, lambda number: LoadModel(number, "tiny"))
    recovering.session.supervisor_ended()
    not_sent = recovering.session.start_call({}, UpgradeServer)
    recovering.handlers.on_message(Shutdown(60.0, "another version of lemonbus takes over"), b"")
    assert isinstance(upgrade.next(0), CallResult)
    assert envelope.unpack_payload(upgrade.report, UpgradeReport) == UpgradeReport()
    for call in (load, not_sent):
        with pytest.raises(LemonbusError, match="repeat the request"):
            call.next(0)


def test_a_log_follower_gets_the_entries_of_the_new_log_behind_those_of_the_old(recovering: RecoveringSession) -> None:
    def follow(number: int) -> FollowLogs:
        return FollowLogs(number, after_seq=7, boot="b1", model="tiny")

    call = recovering.session.start_call({}, follow, endless=True)
    recovering.answer(call.number, LogSnapshot("b1", [LogEntry(8, b"{}")]))
    assert isinstance(call.next(0), CallResult)
    assert recovering.replace() == [FollowLogs(call.number, model="tiny")]
    recovering.answer(call.number, LogSnapshot("b1", [LogEntry(1, b"{}"), LogEntry(2, b"{}")], dropped=3))
    assert call.next(0) == LogBatch(call.number, [LogEntry(1, b"{}"), LogEntry(2, b"{}")], 3)
    assert recovering.replace() == [FollowLogs(call.number, model="tiny")]
    recovering.answer(call.number, LogSnapshot("b1", []))
    assert call.next(0) is None


def test_a_response_in_the_background_goes_on_if_it_cannot_be_stored_again(recovering: RecoveringSession) -> None:
    call = recovering.session.start_call({}, lambda n: StoreResponse(n, "resp_2", "resp_1", running=True), endless=True)
    recovering.answer(call.number, None)
    assert isinstance(call.next(0), CallResult)
    assert recovering.replace() == [call.message]
    recovering.refuse(call.number, Code.NOT_FOUND)
    assert call.next(0) is None
    recovering.refuse(call.number, Code.CANCELLED)
    with pytest.raises(LemonbusError):
        call.next(0)


def test_calls_are_repeated_in_their_order(recovering: RecoveringSession) -> None:
    calls = [recovering.session.start_call({}, GetHealth) for _ in range(200)]
    assert [each.number for each in recovering.replace()] == [each.number for each in calls]
