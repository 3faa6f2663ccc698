"""When the gunicorn master gives up a worker: not within the seconds of delay of a machine under load. Also its heartbeat."""

from __future__ import annotations

import os
import signal
import time
from types import SimpleNamespace

import pytest

from gateway.server.gunicorn_master import HEARTBEAT_TIMEOUT_S, GunicornMaster


@pytest.mark.parametrize(("silent_s", "signals"), [(1, []), (60, []), (HEARTBEAT_TIMEOUT_S + 1, [signal.SIGABRT])])
def test_a_worker_without_processor_time_for_a_minute_is_kept(silent_s: float, signals: list[signal.Signals]) -> None:
    heartbeat = SimpleNamespace(last_update=lambda: time.monotonic() - silent_s)
    master = GunicornMaster.__new__(GunicornMaster)
    master.timeout = HEARTBEAT_TIMEOUT_S
    master.WORKERS = {1: SimpleNamespace(tmp=heartbeat, aborted=False)}
    master.log = SimpleNamespace(critical=lambda *_: None)
    sent: list[signal.Signals] = []
    master.kill_worker = lambda _pid, number: sent.append(number)
    master.murder_workers()
    assert sent == signals


@pytest.mark.parametrize("reader", ["none", "silent"])
def test_the_heartbeat_needs_no_supervisor_that_reads_it(reader: str) -> None:
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    master = GunicornMaster.__new__(GunicornMaster)
    master._heartbeat_fd = write
    if reader == "none":
        os.close(read)
    try:
        for _ in range(2):
            master._beat(b"." * 70_000)
        master._beat(b".")
    finally:
        os.close(write)
        if reader != "none":
            os.close(read)
