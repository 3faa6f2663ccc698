"""When the gunicorn master gives a worker up: not within the seconds that a machine under load takes."""

from __future__ import annotations

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
