"""Processor time of a small request in each process, and what API keys add to it.

Rates of a busy machine vary by a fifth. The processor time of a request varies less, and it limits the rate.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from protocol.config.api_keys import KEYS_FILE, ApiKey, Scope, digest, write_keys
from tests.benchmarks.load_generator import LoadJob, run_in_process
from tests.benchmarks.measuring import processor_seconds
from tests.support.server import LemonbusServer

MODEL: Final = "extra.tiny-loop"
CLIENTS: Final = (1, 8, 32)
REQUESTS: Final = {1: 150, 8: 40, 32: 20}
"""Requests of a client in a round."""
_PLENTY: Final = 1_000_000_000
_NAMES: Final = {"a key": "plain", "a key with limits": "limited"}
"""Kind of caller → the name of its key, which is also the key."""


class _Case(NamedTuple):
    request: str
    form: str
    clients: int


class ProcessorTime(msgspec.Struct):
    """Microseconds of a request, medians over the rounds. ``caller``: no keys, a key, or one with limits."""

    request: str
    clients: int
    caller: str
    gateway: float
    supervisor: float
    worker: float
    engine: float
    requests_per_s: float

    @property
    def ours(self) -> float:
        """Everything except the engine."""
        return self.gateway + self.supervisor + self.worker

    @property
    def total(self) -> float:
        return self.ours + self.engine


_CASES: Final = (
    *(_Case("chat of one token", "chat/completions", clients) for clients in CLIENTS),
    _Case("GET stats", "stats", 32),
)
_PROCESSES: Final = ("gateway", "supervisor", "worker", "engine")


def measure(rounds: int) -> list[ProcessorTime]:
    """Measure all cases with and without keys, in turn."""
    with _server() as open_server, _server(api_key="root") as keyed:
        keys = [
            ApiKey(name="plain", sha256=digest("plain"), scopes=[Scope.INFERENCE]),
            ApiKey(
                name="limited",
                sha256=digest("limited"),
                scopes=[Scope.INFERENCE],
                requests_per_minute=_PLENTY,
                concurrent=_PLENTY,
            ),
        ]
        write_keys(Path(keyed.settings.state_dir) / KEYS_FILE, keys)
        callers = {"no keys": (open_server, ""), **{what: (keyed, key) for what, key in _NAMES.items()}}
        for server in (open_server, keyed):
            server.wait_loaded(MODEL)
        pids = {id(server): _pids(server) for server in (open_server, keyed)}
        seen: dict[tuple[_Case, str], list[dict[str, float]]] = {}
        for turn in range(rounds + 1):
            for case in _CASES:
                names = list(callers)
                for caller in names[turn % 3 :] + names[: turn % 3]:
                    server, key = callers[caller]
                    figures = _measured(case, server.port, key, pids[id(server)])
                    if turn:  # the first round warms everything up
                        seen.setdefault((case, caller), []).append(figures)
        return [_median(case, caller, seen[case, caller]) for case in _CASES for caller in callers]


def _server(**settings: str) -> LemonbusServer:
    return LemonbusServer(
        "tiny-loop", slots=32, ctx_size=1024, log_level="info", gateway_workers=0, load=[MODEL], **settings
    )


def _pids(server: LemonbusServer) -> dict[str, list[int]]:
    engine = server.engine(MODEL)
    return {
        "gateway": server.gateway_pids(),
        "supervisor": [server.supervisor_pid],
        "worker": [engine.parent],
        "engine": [engine.pid],
    }


def _measured(case: _Case, port: int, key: str, pids: dict[str, list[int]]) -> dict[str, float]:
    before = {process: processor_seconds(pids[process]) for process in _PROCESSES}
    result = run_in_process(
        LoadJob(port, MODEL, case.clients, REQUESTS[case.clients], 1, stream=False, form=case.form, key=key)
    )
    if result.broken:
        raise RuntimeError(f"{result.broken} of the requests failed: {case}")
    used = {
        process: (processor_seconds(pids[process]) - before[process]) * 1e6 / result.requests for process in _PROCESSES
    }
    return {**used, "requests_per_s": result.requests / result.seconds}


def _median(case: _Case, caller: str, rounds: list[dict[str, float]]) -> ProcessorTime:
    figures = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
    return ProcessorTime(case.request, case.clients, caller, **figures)
