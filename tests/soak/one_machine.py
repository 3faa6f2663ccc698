"""The soak on one machine: random requests while processes of the server are killed and stopped."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Final

from tests.soak import checks, oracle
from tests.soak.clients import soak
from tests.soak.history import Entry, History
from tests.soak.machine_faults import MachineFaults
from tests.support import processes
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

MODELS: Final = ("tiny-chat", "tiny-tale", "tiny-loop", "tiny-embed", "tiny-rerank")
MAX_SUPERVISOR_BYTES: Final = 80 * 1024 * 1024


def run(seconds: float, seed: int, clients: int, history: History, log: Path | None) -> None:
    """Run it for so long; what is wrong is in ``history``. ``log``: a file for what happened."""
    settings: dict[str, Any] = {
        "max_loaded_models": 2,
        "slots": 4,
        "peer_silence": 3.0,
        "log_level": "info",
        "backoff_first": 0.2,
    }
    with LemonbusServer(*MODELS, breaker_deaths=10_000, backoff_most=2.0, **settings) as server:
        end = threading.Event()
        faults = MachineFaults(server, seed, end, history)
        soak(server, [Entry("head", server.port)] * clients, seconds, seed, faults, end, history)
        _check_afterwards(server, history)
        before_end = len(server.lines)
        server.stop(60.0)
        lines = server.lines[:before_end]
        checks.check_log(lines, server.unread, history)
        if log is not None:
            checks.write_log(log, lines, history)
    for failed in history.failed:
        if failed.code in oracle.OF_NODES:
            history.violate(f"there is only one machine: {failed}")


def _check_afterwards(server: LemonbusServer, history: History) -> None:
    """Check that everything is as if nothing had happened: idle, every model answers, no superfluous spare process."""
    try:
        checks.wait_idle(server)
        checks.wait_answers(server)
        wait_for(lambda: _spare_workers(server) <= 1, "at most one spare worker is left", checks.SETTLE_S)
    except (AssertionError, OSError) as error:
        history.violate(str(error)[:2000])
    supervisor = processes.memory(server.supervisor_pid)
    print(f"soak: PSS of the supervisor {supervisor / 2**20:.1f} MiB")
    if supervisor > MAX_SUPERVISOR_BYTES:
        history.violate(f"the supervisor has {supervisor} bytes")


def _spare_workers(server: LemonbusServer) -> int:
    return len(server.workers()) - len(server.state()["models"])
