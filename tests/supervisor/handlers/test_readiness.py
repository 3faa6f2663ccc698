"""What ``/readyz?model=NAME`` says of a model that is not loaded, and which requests a drain waits for."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from protocol.failures import Code, Failure
from protocol.messages.health import FailedModel
from protocol.messages.readiness import AwaitedModel, DrainReport, GetDrain, GetReadiness, ReadinessReport
from supervisor.handlers.readiness import ReadinessCalls
from supervisor.persistence.server_record import ServerRecord

AT_START = Failure(Code.BACKEND_NOT_INSTALLED, "its program was not found")
LATER = Failure(Code.LOAD_FAILED, "its engine exited with code 3")


@pytest.mark.parametrize(
    ("failed", "reason"), [([], AT_START.message), ([FailedModel("m", LATER, 1, 2.0)], LATER.message)]
)
def test_the_reason_is_the_last_known_failure(failed: list[FailedModel], reason: str) -> None:
    record, calls = ServerRecord(), Mock()
    record.start_failed("m", AT_START)
    readiness = ReadinessCalls(
        loop=Mock(),
        bus=Mock(),
        peers=Mock(),
        models=Mock(find=lambda _: SimpleNamespace(name="m")),
        view=Mock(model=lambda _: None, failed_models=lambda _: failed),
        record=record,
        calls=calls,
        awaited=list,
        reserved=lambda: 0,
    )
    readiness.handlers()[GetReadiness]("g1", GetReadiness(1, "alias"), b"")
    calls.answer.assert_called_once_with("g1", 1, ReadinessReport(False, [AwaitedModel("m", "absent", reason)]))
    assert list(record.failed_at_start) == ["m"]


def test_a_drain_waits_for_requests_whose_pictures_are_still_read() -> None:
    calls = Mock()
    readiness = ReadinessCalls(
        loop=Mock(),
        bus=Mock(),
        peers=Mock(),
        models=Mock(),
        view=Mock(running=1, queued=2),
        record=ServerRecord(),
        calls=calls,
        awaited=list,
        reserved=lambda: 4,
    )
    readiness.handlers()[GetDrain]("g1", GetDrain(1), b"")
    calls.answer.assert_called_once_with("g1", 1, DrainReport(drained=False, running=1, queued=6))
