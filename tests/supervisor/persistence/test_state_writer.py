"""State files are completed by a thread: the loop does not wait for the disk, and an answer waits for its write."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.runtime.loop import Loop
from supervisor.persistence import state_files
from supervisor.persistence.state_files import StateFile
from supervisor.persistence.state_writer import StateWriter

DEADLINE = 5.0


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


@pytest.fixture
def writer(loop: Loop) -> Iterator[StateWriter]:
    made = StateWriter(loop)
    yield made
    made.close()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A disk whose syncs wait until the event is set."""
    ready = threading.Event()
    monkeypatch.setattr(state_files.os, "fsync", lambda _file: ready.wait(DEADLINE))
    yield ready
    ready.set()


def run_until(loop: Loop, condition: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        loop.run_once(0.1)


def test_the_loop_does_not_wait_for_a_slow_disk(
    loop: Loop, writer: StateWriter, disk: threading.Event, tmp_path: Path
) -> None:
    file = StateFile(tmp_path / "f.json", writer.finish)
    written: list[OSError | None] = []
    file.replace({"a": 1})
    file.replace({"a": 2})
    writer.when_written(written.append)
    loop.run_once(0.0)
    assert (written, file.path.exists()) == ([], False)
    assert file.read() == {"a": 2}, "what is being written is what is read"
    assert not file.changed()
    disk.set()
    run_until(loop, lambda: written)
    assert written == [None]
    assert json.loads(file.path.read_text()) == {"a": 2}
    assert [each.name for each in tmp_path.iterdir()] == ["f.json"]
    assert not file.changed(), "our own write is not a change"
    file.path.write_text('{"b": 3}')
    assert file.changed()
    assert file.read() == {"b": 3}


def test_a_write_that_fails_is_reported_and_the_disk_counts_again(
    loop: Loop, writer: StateWriter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = StateFile(tmp_path / "f.json")
    file.replace({"a": 1})

    def fails(_file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(state_files.os, "fsync", fails)
    file = StateFile(tmp_path / "f.json", writer.finish)
    written: list[OSError | None] = []
    file.replace({"a": 2})
    writer.when_written(written.append)
    run_until(loop, lambda: written)
    (problem,) = written
    assert problem is not None
    assert problem.errno == errno.EIO
    assert file.problems == ["f.json could not be written: Input/output error"]
    assert file.changed()
    assert file.read() == {"a": 1}
    assert [each.name for each in tmp_path.iterdir()] == ["f.json"]


def test_what_was_begun_is_completed_at_the_end(loop: Loop, tmp_path: Path) -> None:
    writer = StateWriter(loop)
    file = StateFile(tmp_path / "f.json", writer.finish)
    file.replace({"a": 1})
    writer.close()
    assert json.loads(file.path.read_text()) == {"a": 1}
