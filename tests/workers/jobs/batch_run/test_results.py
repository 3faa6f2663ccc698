"""Results on the disk: half a line is cut off, and a batch goes on wherever its process was killed."""

from __future__ import annotations

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec import structs

from protocol.batches.batch_states import BatchState
from protocol.batches.batch_store import BatchOrder, BatchStore, StoredBatch, new_id
from protocol.batches.file_store import FileStore
from protocol.config.settings import Settings
from protocol.failures import Code, LemonbusError
from tests.support.waiting import pause
from workers.jobs.batch_run.answers import LineAnswer
from workers.jobs.batch_run.batch import RunningBatch
from workers.jobs.batch_run.results import ResultFile

NOW = 1_900_000_000
LONGEST = 1000


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state_dir=str(tmp_path))


def made(settings: Settings, lines: int = 3, window: int = 3600, owner: str = "") -> BatchOrder:
    order = BatchOrder(new_id("batch"), owner, "/v1/embeddings", NOW, NOW + window, input_file_id="file-x")
    found = [
        json.dumps({"custom_id": str(each), "method": "POST", "url": "/v1/embeddings", "body": {"model": "m"}})
        for each in range(lines)
    ]
    BatchStore(settings).create(order, [f"{line}\n".encode() for line in found])
    return order


def running(settings: Settings, order: BatchOrder, now: int = NOW) -> RunningBatch:
    """Return a batch as a new process finds it."""
    store = BatchStore(settings)
    found = RunningBatch(store, FileStore(settings), store.get(order.id, None), LONGEST, lambda: float(now))
    found.look()
    found.begin()
    return found


def answer_next(batch: RunningBatch, status: int = 200) -> str:
    line = batch.next_line()
    assert line is not None
    batch.answered(line, LineAnswer(status, b'{"a": 1}'))
    return line.custom_id


@pytest.mark.parametrize("left", [b"", b"{", b'{"custom_id":"x"', b'{"custom_id":"' + b"x" * 200_000])
def test_half_a_line_is_cut_off(tmp_path: Path, left: bytes) -> None:
    path = tmp_path / "output"
    whole = b'{"custom_id":"a"}\n{"custom_id":"b"}\n'
    for before, ids in ((whole, {"a", "b"}), (b"", set())):
        path.write_bytes(before + left)
        file = ResultFile(path)
        assert file.ids() == ids
        file.append(b'{"custom_id":"c"}')
        file.close()
        assert path.read_bytes() == before + b'{"custom_id":"c"}\n'


def test_a_batch_goes_on_after_each_line(settings: Settings) -> None:
    order = made(settings)
    seen = [answer_next(running(settings, order), status) for status in (200, 400, 200)]
    assert seen == ["0", "1", "2"]
    batch = running(settings, order)
    batch.look()
    assert batch.progress.state is BatchState.FINALIZING
    running(settings, order).finish()
    done = BatchStore(settings).get(order.id, None).progress
    assert (done.state, done.total, done.completed, done.failed) == (BatchState.COMPLETED, 3, 2, 1)
    files = FileStore(settings)
    assert files.get(done.output_file_id, "").filename == f"{order.id}_output.jsonl"
    output = files.data(done.output_file_id).read_text().splitlines()
    assert [json.loads(line)["custom_id"] for line in output] == ["0", "2"]
    assert json.loads(output[0])["response"]["body"] == {"a": 1}
    assert files.get(done.error_file_id, "").bytes
    assert not BatchStore(settings).path(order.id, "input.jsonl").exists()


def test_killed_between_the_results_and_the_end(settings: Settings) -> None:
    order = made(settings)
    batch = running(settings, order)
    while batch.progress.completed < 3:
        answer_next(batch)
    batch.look()
    store = BatchStore(settings)
    named = structs.replace(batch.progress, output_file_id="file-" + "0" * 32)
    store.write_progress(order.id, named)
    files = FileStore(settings)
    files.folder.mkdir()
    files.data(named.output_file_id).write_bytes(store.path(order.id, "output.jsonl").read_bytes())
    running(settings, order).finish()
    done = store.get(order.id, None).progress
    assert (done.state, done.output_file_id) == (BatchState.COMPLETED, named.output_file_id)
    assert len(files.list(None)) == 1


@pytest.mark.parametrize("begun", [0, 1])
def test_cancelled(settings: Settings, begun: int) -> None:
    order, store = made(settings), BatchStore(settings)
    if begun:
        answer_next(running(settings, order))
    store.cancel(order.id)
    assert store.get(order.id, None).state is BatchState.CANCELLING
    batch = running(settings, order)
    batch.look()
    batch.finish()
    done = store.get(order.id, None).progress
    assert (done.state, done.total) == (BatchState.CANCELLED, 3)
    assert (done.completed, done.failed, done.cancelled) == (begun, 3 - begun, 3 - begun)


def test_of_an_input_that_was_not_checked_a_bounded_part_has_results(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.jobs.batch_run.batch.MAX_LINES", 2)
    found = []
    for lines in (2, 5):
        order = made(settings, lines)
        BatchStore(settings).cancel(order.id)
        batch = running(settings, order)
        batch.finish()
        found.append((batch.progress.state, batch.progress.total, batch.progress.cancelled))
    assert found == [(BatchState.CANCELLED, 2, 2)] * 2
    monkeypatch.setattr("workers.jobs.batch_run.batch.MAX_NUMBER", 1)
    order = made(settings)
    BatchStore(settings).cancel(order.id)
    batch = running(settings, order)
    batch.finish()
    assert batch.progress.total == 1, "nor is it read to its end"


def test_batches_that_are_made_at_the_same_time_share_the_limit(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protocol.batches.batch_store.MAX_OPEN_OF_KEY", 3)
    owned_by = BatchStore.owned_by

    def slow(store: BatchStore, owner: str | None, kind: str = "") -> list[StoredBatch]:
        found = owned_by(store, owner, kind)
        pause(0.02)
        return found

    monkeypatch.setattr(BatchStore, "owned_by", slow)

    def make(_number: int) -> Code | None:
        try:
            made(settings)
        except LemonbusError as problem:
            return problem.failure.code
        return None

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(make, range(8)))
    assert (found.count(None), found.count(Code.RATE_LIMITED)) == (3, 5)
    assert not list(BatchStore(settings).folder.glob(".*")), "nothing is left of the others"


def test_its_time_is_over(settings: Settings) -> None:
    order = made(settings)
    answer_next(running(settings, order))
    batch = running(settings, order, NOW + 3600)
    batch.look()
    batch.finish()
    done = BatchStore(settings).get(order.id, None).progress
    assert (done.state, done.completed, done.failed, done.expired) == (BatchState.EXPIRED, 1, 2, 2)
    errors = FileStore(settings).data(done.error_file_id).read_text()
    assert errors.count("batch_expired") == 2


def test_who_sees_a_batch_and_how_many_there_may_be(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, store = made(settings, owner="a"), BatchStore(settings)
    for owner, kind in (("b", "batch"), ("a", "msgbatch")):
        with pytest.raises(LemonbusError, match="there is no batch"):
            store.get(mine.id, owner, kind)
    assert store.get(mine.id, "a").order == mine
    monkeypatch.setattr("protocol.batches.batch_store.MAX_OPEN_OF_KEY", 1)
    with pytest.raises(LemonbusError, match="1 of your batches"):
        made(settings, owner="a")
    made(settings, owner="b")
    store.cancel(mine.id)
    batch = running(settings, mine)
    batch.look()
    batch.finish()
    monkeypatch.setattr("protocol.batches.batch_store.MAX_KEPT_OF_KEY", 1)
    after = made(settings, owner="a")
    assert [each.order.id for each in store.owned_by("a")] == [after.id], "the oldest that has ended was forgotten"


class FillingDisk:
    """A disk that takes half of what is written while it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        write, fsync = os.pwrite, os.fsync

        def pwrite(fd: int, data: memoryview, at: int) -> int:
            if not self.full:
                return write(fd, data, at)
            if len(data) < 40:
                self.refuse()
            return write(fd, data[: len(data) // 2], at)

        def flush(fd: int) -> None:
            if self.full:
                self.refuse()
            fsync(fd)

        monkeypatch.setattr(os, "pwrite", pwrite)
        monkeypatch.setattr(os, "fsync", flush)

    def refuse(self) -> None:
        raise OSError(errno.ENOSPC, "the disk is full")


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, path = FillingDisk(monkeypatch), tmp_path / "output"
    file = ResultFile(path)
    disk.full = True
    with pytest.raises(OSError, match="full"):
        file.append(b'{"custom_id":"' + b"x" * 500 + b'"}')
    disk.full = False
    file.append(b'{"custom_id":"short"}')
    assert file.close() == path.stat().st_size
    assert path.read_bytes() == b'{"custom_id":"short"}\n'


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_full_disk_at_the_end(settings: Settings, monkeypatch: pytest.MonkeyPatch, cancelled: bool) -> None:
    disk, order, store = FillingDisk(monkeypatch), made(settings, lines=4), BatchStore(settings)
    batch = running(settings, order)
    answer_next(batch)
    while not cancelled and batch.progress.completed < 4:
        answer_next(batch)
    if cancelled:
        store.cancel(order.id)
    for step in (batch.look, batch.finish):
        disk.full = True
        for _ in range(2):
            with pytest.raises(OSError, match="full"):
                step()
        disk.full = False
        step()
    done = store.get(order.id, None).progress
    completed = 1 if cancelled else 4
    assert done.state is (BatchState.CANCELLED if cancelled else BatchState.COMPLETED)
    assert (done.total, done.completed, done.failed) == (4, completed, 4 - completed)
    files = [FileStore(settings).data(each) for each in (done.output_file_id, done.error_file_id) if each]
    ids = [json.loads(line)["custom_id"] for file in files for line in file.read_text().splitlines()]
    assert sorted(ids) == ["0", "1", "2", "3"], "each line has one result"


def test_damaged_files(settings: Settings) -> None:
    order, store = made(settings, lines=4), BatchStore(settings)
    batch = running(settings, order)
    for _ in range(3):
        answer_next(batch)
    output = store.path(order.id, "output.jsonl")
    first, second, third = output.read_bytes().splitlines(keepends=True)
    output.write_bytes(first + b"\0" * len(second) + b"\n" + third)
    store.path(order.id, "progress.json").write_bytes(b'{"state":"in_pro')
    assert store.get(order.id, None).progress.state is BatchState.VALIDATING
    again = running(settings, order)
    assert (again.progress.total, again.progress.completed) == (4, 1)
    assert [answer_next(again) for _ in range(3)] == ["1", "2", "3"]
    again.sync()
    assert [json.loads(line)["custom_id"] for line in output.read_text().splitlines()] == ["0", "1", "2", "3"]
