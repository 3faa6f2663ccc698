"""What one supervisor leaves to the next one, in memory that the keeper holds."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.calls import Progress
from protocol.messages.model_files import Registration
from protocol.messages.readiness import ServerReadiness
from supervisor.persistence.server_record import (
    MAX_DEATHS,
    MAX_DRAINED_NODES,
    MAX_MODELS,
    MAX_PAUSED,
    PausedDownload,
    ServerRecord,
)

FAILED = Failure(Code.LOAD_FAILED, "it does not start", model="big")


class FakeKeeper:
    """Holds the latest descriptor."""

    def __init__(self) -> None:
        self.held = -1
        self.now = 0.0

    def hold(self, descriptor: int) -> None:
        self.release()
        self.held = os.dup(descriptor)

    def successor(self) -> ServerRecord:
        """Return the next supervisor's record."""
        record = ServerRecord(lambda: self.now)
        record.keep(os.dup(self.held) if self.held >= 0 else -1, self.hold)
        return record

    def release(self) -> None:
        if self.held >= 0:
            os.close(self.held)
            self.held = -1


@pytest.fixture
def keeper() -> Iterator[FakeKeeper]:
    made = FakeKeeper()
    yield made
    made.release()


def test_the_next_supervisor_knows_which_downloads_are_paused(keeper: FakeKeeper) -> None:
    first = keeper.successor()
    paused = PausedDownload(Registration("o/r:Q4", "llamacpp"), Progress(0, "m", "m.gguf", 1, 1, 50, 100))
    first.download_paused("m", paused)
    second = keeper.successor()
    assert second.paused_downloads == {"m": paused}
    second.download_resumed("m")
    second.download_resumed("other")
    assert keeper.successor().paused_downloads == {}


def test_paused_downloads_are_bounded() -> None:
    record = ServerRecord()
    for number in range(MAX_PAUSED):
        record.download_paused(f"m{number}", PausedDownload())
    record.download_paused("m0", PausedDownload())
    with pytest.raises(LemonbusError, match="64 downloads are paused already"):
        record.download_paused("another", PausedDownload())


def test_the_next_supervisor_knows_what_what_the_last_one_noted(keeper: FakeKeeper) -> None:
    first = keeper.successor()
    assert (first.drained, first.failed_at_start) == (False, {})
    first.set_drained(True)
    first.start_failed("big", FAILED)
    second = keeper.successor()
    assert second.readiness == ServerReadiness(ready=False, drained=True)
    assert second.failed_at_start == {"big": FAILED}
    second.set_drained(False)
    second.loaded("big")
    second.loaded("other")
    third = keeper.successor()
    assert (third.drained, third.failed_at_start) == (False, {})


def test_the_last_deaths_of_each_model_are_kept_and_all_are_counted(keeper: FakeKeeper) -> None:
    record = keeper.successor()
    for number in range(MAX_DEATHS + 2):
        keeper.now = 100.0 + number
        record.engine_died("big", Failure(Code.BACKEND_DIED, f"death {number}"))
    record.engine_died("small", Failure(Code.HUNG, "x" * 10_000))
    small, big = keeper.successor().deaths
    assert (big.model, big.count) == ("big", MAX_DEATHS + 2)
    assert [each.reason for each in big.last] == [f"death {number}" for number in (6, 5, 4, 3, 2)]
    assert [(each.age, each.code) for each in big.last[:2]] == [(0.0, "backend_died"), (1.0, "backend_died")]
    assert (small.model, small.count, len(small.last[0].reason) < 1000) == ("small", 1, True)


def test_the_models_whose_engines_died_last_are_kept(keeper: FakeKeeper) -> None:
    record = keeper.successor()
    for number in [*range(MAX_MODELS + 5), 3]:
        record.engine_died(f"m{number}", FAILED)
    names = [each.model for each in keeper.successor().deaths]
    assert len(names) == MAX_MODELS
    assert names[:2] == ["m3", f"m{MAX_MODELS + 4}"]
    assert "m4" not in names


def test_a_record_that_cannot_be_read_is_an_empty_one(keeper: FakeKeeper) -> None:
    keeper.held = os.memfd_create("record")
    os.write(keeper.held, b"of another release")
    record = keeper.successor()
    assert not record.drained
    record.set_drained(True)
    assert keeper.successor().drained


def test_the_next_supervisor_knows_which_nodes_are_drained_and_since_when(keeper: FakeKeeper) -> None:
    first = keeper.successor()
    first.set_node_drained("gpu2", True)
    keeper.now += 3.0
    first.set_node_drained("gpu3", True)
    first.set_node_drained("gpu2", True)
    keeper.now += 1.0
    second = keeper.successor()
    assert second.drained_nodes == {"gpu2": 4.0, "gpu3": 1.0}
    second.set_node_drained("gpu2", False)
    second.set_node_drained("other", False)
    assert keeper.successor().drained_nodes == {"gpu3": 1.0}


def test_drained_nodes_are_bounded() -> None:
    record = ServerRecord()
    for number in range(MAX_DRAINED_NODES):
        record.set_node_drained(f"n{number}", True)
    record.set_node_drained("n0", True)
    with pytest.raises(LemonbusError) as refused:
        record.set_node_drained("more", True)
    assert refused.value.failure.code is Code.CONFLICT
