"""Runs the soak: ``python -m tests.soak --minutes 2 --seed 7``. Exits 1 and prints every violation if there is one."""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import threading
import time
from typing import Final

from tests.soak import oracle
from tests.soak.clients import PATIENCE_S, SoakClient, Tally
from tests.soak.fault_injection import FaultInjector
from tests.support import processes
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

MODELS: Final = ("tiny-chat", "tiny-tale", "tiny-loop", "tiny-embed", "tiny-rerank")
SETTLE_S: Final = 60.0
"""After the last fault, within this time the server must be idle and every model must answer again."""
MAX_SUPERVISOR_BYTES: Final = 80 * 1024 * 1024


def main() -> int:
    """Run it; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Random requests and random faults.")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--clients", type=int, default=8)
    asked = parser.parse_args()
    print(f"soak: seed {asked.seed}, {asked.minutes:g} minutes, {asked.clients} clients", flush=True)
    tally = Tally()
    settings = {"max_loaded_models": 2, "slots": 4, "peer_silence": 3.0, "log_level": "info", "backoff_first": 0.2}
    with LemonbusServer(*MODELS, breaker_deaths=10_000, backoff_most=2.0, **settings) as server:
        _soak(server, tally, asked.minutes * 60, asked.seed, asked.clients)
        _check_afterwards(server, tally)
        before_end = len(server.lines)
        server.stop(60.0)
    _check_log(server.lines[:before_end], server.unread, tally)
    for kind, count in sorted(tally.counts.items()):
        print(f"{count:8} {kind}")
    for violation in tally.violations[:50]:
        print(f"VIOLATION {violation}")
    print(f"soak: {len(tally.violations)} violations; seed {asked.seed}")
    return int(bool(tally.violations))


def _soak(server: LemonbusServer, tally: Tally, seconds: float, seed: int, clients: int) -> None:
    end, end_of_faults = threading.Event(), threading.Event()
    threads = [SoakClient(server.port, seed + 1 + number, end, tally) for number in range(clients)]
    faults = FaultInjector(server, seed, end_of_faults, tally)
    for thread in (*threads, faults):
        thread.start()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and server.alive:
        end.wait(min(5.0, max(0.0, deadline - time.monotonic())))
    end_of_faults.set()
    faults.join(30.0)
    end.set()
    for thread in threads:
        thread.join(PATIENCE_S + 30.0)
        if thread.is_alive():
            tally.violate(f"{thread.name} has a request without an end")
    if not server.alive:
        tally.violate("the server is gone")


def _check_afterwards(server: LemonbusServer, tally: Tally) -> None:
    """Check that everything is as if nothing had happened: idle, every model answers, no superfluous spare process."""
    try:
        wait_for(lambda: _is_idle(server), "no grant and no queue is left", SETTLE_S)
        for model in (*oracle.TEXTS, oracle.ENDLESS):
            wait_for(lambda model=model: _answers(server, model), f"{model} answers", SETTLE_S)  # type: ignore[misc]
        wait_for(lambda: _spare_workers(server) <= 1, "at most one spare worker is left", SETTLE_S)
    except (AssertionError, OSError) as error:
        tally.violate(str(error)[:2000])
    supervisor = processes.memory(server.supervisor_pid)
    print(f"soak: PSS of the supervisor {supervisor / 2**20:.1f} MiB")
    if supervisor > MAX_SUPERVISOR_BYTES:
        tally.violate(f"the supervisor has {supervisor} bytes")


def _is_idle(server: LemonbusServer) -> bool:
    """Return whether it is idle; False while its gateways are replaced, because the last fault may be a moment ago."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        state = server.state()
        return bool(state["granted"] == state["queued"] == 0)
    return False


def _spare_workers(server: LemonbusServer) -> int:
    return len(server.workers()) - len(server.state()["models"])


def _answers(server: LemonbusServer, model: str) -> bool:
    exchange = server.client.chat(model, PATIENCE_S, max_tokens=64)
    wrong = oracle.check_chat(exchange, model, 64)
    assert not wrong, wrong
    return exchange.status == 200


def _check_log(lines: list[dict[str, object]], unread: list[str], tally: Tally) -> None:
    """Check that no log line is broken and no programming error has happened."""
    for line in unread[:5]:
        tally.violate(f"a line of the log is not JSON: {line[:300]}")
    for record in lines:
        if "exception" in record:
            tally.violate(
                f"an exception: {record.get('process')} {record.get('event')} {str(record['exception'])[-600:]}"
            )


if __name__ == "__main__":
    sys.exit(main())
