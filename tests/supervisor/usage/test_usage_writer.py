"""Usage gets to the disk once a second; a disk that does not take it stops nothing and loses nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

from protocol.messages.usage import UsageFilter, UsageReport, UsageRow
from supervisor.persistence.memfd_journal import MemfdJournal
from supervisor.usage import usage_writer as usage_writer_module
from supervisor.usage.journal import Record
from supervisor.usage.store import FILE, UsageStore
from supervisor.usage.usage_counts import Batch
from supervisor.usage.usage_writer import UsageWriter
from tests.supervisor.usage.counting_supervisor import DAY, NOON, OUTCOME, CountingSupervisor, end

DEADLINE = 10.0
ROW = UsageRow(DAY, "ci", "m", 1, 10, 4, 3, 0.5)
ALL = UsageFilter()


class WritingSupervisor(CountingSupervisor):
    """The same with the thread that writes, and a loop whose time passes when the test says so."""

    def __init__(self, path: Path, held: MemfdJournal[Record] | None = None) -> None:
        super().__init__(held)
        self.time = 7.0
        self.loop.now = lambda: self.time
        self.store = UsageStore(path, 400)
        self.writer = UsageWriter(self.loop, self.store, self.accounting, lambda: NOON)

    def run_until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < deadline, "it did not happen"
            self.loop.run_once(0.01)

    def tick(self, seconds: float = 1.1) -> None:
        self.time += seconds
        self.loop.run_once(0.0)

    def read(self, wanted: UsageFilter = ALL) -> UsageReport:
        reports: list[Any] = []
        self.writer.read(wanted, reports.append)
        self.run_until(lambda: reports)
        assert isinstance(reports[0], UsageReport)
        return reports[0]

    def on_disk(self) -> list[UsageRow]:
        return UsageStore(self.store._path, 0).read(ALL)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WritingSupervisor]:
    made = WritingSupervisor(tmp_path / FILE)
    yield made
    made.writer.close()
    made.loop.close()


def test_what_was_counted_is_on_the_disk_a_second_later(server: WritingSupervisor) -> None:
    server.writer.start()
    server.accounting.attempt_ended("w1", end(1, outcome=OUTCOME))
    assert server.read() == UsageReport([ROW]), "before it is written"
    server.tick()
    server.run_until(lambda: not server.accounting.unwritten)
    assert server.on_disk() == [ROW]
    server.accounting.attempt_ended("w1", end(2, outcome=OUTCOME))
    assert server.read() == UsageReport([ROW.plus(ROW)]), "the disk and the memory"
    summed = msgspec.structs.replace(ROW.plus(ROW), day="")
    assert server.read(UsageFilter(by_day=False)) == UsageReport([summed]), "both under one name"


def test_a_slow_disk_keeps_nobody_waiting(server: WritingSupervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    released, write = threading.Event(), server.store.write
    monkeypatch.setattr(server.store, "write", lambda *given: released.wait(DEADLINE) and write(*given))
    server.writer.start()
    for serial in range(1, 4):
        server.accounting.attempt_ended("w1", end(serial, outcome=OUTCOME))
        server.tick()
    (row,) = server.accounting.unwritten
    assert row.requests == 3
    released.set()
    server.run_until(lambda: server.accounting.unwritten != [row])
    server.tick()
    server.run_until(lambda: not server.accounting.unwritten)
    assert server.on_disk() == [row]


def test_what_the_disk_does_not_take_is_kept_said_and_written_later(server: WritingSupervisor, tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with structlog.testing.capture_logs() as lines:
        server.writer.start()
        server.accounting.attempt_ended("w1", end(1, outcome=OUTCOME))
        for _ in range(3):
            server.tick(usage_writer_module.MOST_PAUSE_S + 1)
            server.run_until(lambda: not server.writer._writing)
    assert [each["log_level"] for each in lines if "usage cannot" in each["event"]] == ["error"], "once"
    assert "usage cannot be written" in server.writer.problem
    report = server.read()
    assert (report.rows, "usage cannot be read" in report.problem) == ([ROW], True)
    (tmp_path / FILE).rmdir()
    server.tick(usage_writer_module.MOST_PAUSE_S + 1)
    server.run_until(lambda: not server.accounting.unwritten)
    assert (server.writer.problem, server.on_disk()) == ("", [ROW])


def test_a_supervisor_that_dies_between_writing_and_knowing_it_writes_nothing_twice(
    server: WritingSupervisor, tmp_path: Path
) -> None:
    server.accounting.attempt_ended("w1", end(1, outcome=OUTCOME))
    batch = server.accounting.next_batch()
    assert batch is not None
    server.store.write(batch, DAY)
    successor = WritingSupervisor(tmp_path / FILE, server.held)
    successor.writer.start()
    successor.tick()
    successor.run_until(lambda: not successor.accounting.unwritten)
    assert successor.on_disk() == [ROW]
    successor.writer.close()
    successor.loop.close()


def test_the_end_writes_everything(tmp_path: Path) -> None:
    server = WritingSupervisor(tmp_path / FILE)
    server.writer.start()
    server.accounting.attempt_ended("w1", end(1, outcome=OUTCOME))
    server.tick()
    server.accounting.attempt_ended("w1", end(2, outcome=OUTCOME))
    server.writer.close()
    server.loop.close()
    assert server.on_disk() == [ROW.plus(ROW)]
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(("-wal", "-shm"))] == [FILE]


def test_a_disk_that_hangs_does_not_keep_the_supervisor_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_writer_module, "_CLOSE_S", 0.05)
    server, released = WritingSupervisor(tmp_path / FILE), threading.Event()
    monkeypatch.setattr(server.store, "write", lambda *_: released.wait(DEADLINE))
    server.writer.start()
    server.accounting.attempt_ended("w1", end(1, outcome=OUTCOME))
    server.tick()
    server.writer.close()
    assert server.accounting.unwritten == [ROW], "the next supervisor writes it"
    released.set()
    server.loop.close()


def test_a_new_server_begins_with_the_tokens_that_earlier_ones_have_written(tmp_path: Path) -> None:
    earlier = WritingSupervisor(tmp_path / FILE)
    earlier.writer.start()
    earlier.accounting.attempt_ended("w1", end(1, outcome=OUTCOME))
    earlier.writer.close()
    earlier.loop.close()
    server = WritingSupervisor(tmp_path / FILE)
    server.writer.start()
    assert server.budgets.state()["ci"].of_day == 13
    successor = WritingSupervisor(tmp_path / FILE, server.held)
    successor.writer.start()
    assert successor.budgets.state()["ci"].of_day == 13, "they are not added again"
    for each in (server, successor):
        each.writer.close()
        each.loop.close()


def test_tokens_that_cannot_be_read_at_the_start_count_as_soon_as_they_can(
    server: WritingSupervisor, tmp_path: Path
) -> None:
    server.store.write(Batch("earlier", 1, [ROW]), DAY)
    server.store.close()
    (tmp_path / FILE).rename(tmp_path / "away")
    (tmp_path / FILE).mkdir()
    server.writer.start()
    server.accounting.attempt_ended("w1", end(1, outcome=OUTCOME))
    assert server.budgets.state()["ci"].of_day == 13
    (tmp_path / FILE).rmdir()
    (tmp_path / "away").rename(tmp_path / FILE)
    server.tick(usage_writer_module.MOST_PAUSE_S + 1)
    server.run_until(lambda: not server.accounting.unwritten)
    assert server.budgets.state()["ci"].of_day == 26
