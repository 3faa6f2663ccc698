"""Bodies of requests in files: the loop never waits for the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire import endpoints
from supervisor.processes.spooled_bodies import SpooledBodies


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    folder = endpoints.spool(tmp_path)
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    loop.call_later(20.0, loop.stop)
    yield loop
    loop.close()


def test_while_the_disk_is_slow_the_loop_goes_on(tmp_path: Path, spool: Path, loop: Loop) -> None:
    """A pipe without a writer is the slow disk: who opens it to read waits."""
    os.mkfifo(spool / "g1-1")
    (spool / "g1-2").write_bytes(b"second")
    seen: list[bytes | str] = []

    def write() -> None:
        seen.append("the loop runs")
        (spool / "g1-1").write_bytes(b"first")

    def read(body: bytes | Exception) -> None:
        seen.append(body if isinstance(body, bytes) else type(body).__name__)
        if len(seen) == 4:
            loop.stop()

    bodies = SpooledBodies(loop, ProcessContext(tmp_path, "boot", os.getpid()))
    for name in ("g1-1", "g1-2", "g1-3"):
        bodies.read(name, read)
    loop.call_later(0.05, write)
    loop.run()
    assert seen == ["the loop runs", b"first", b"second", "FileNotFoundError"]
