"""How soon requests are served after the supervisor was killed, and what its keeper costs. Milliseconds and megabytes (10⁶ bytes)."""

from __future__ import annotations

import time

import msgspec

from tests.benchmarks.measuring import median, ms, percentile, until
from tests.support import processes
from tests.support.models.tiny_models import tiny_models
from tests.support.server import LemonbusServer

CHAT = "extra.tiny-chat"
MODELS = 32
_PAUSE_S = 1.1
"""Between two kills: the keeper gives up when ten supervisors in a row die in their first second."""


class RecoveryTimes(msgspec.Struct):
    """``grant``: from the kill to the end of a one-token answer to a request that was sent right after it."""

    kills: int
    grant: float
    grant_p99: float
    answer: float
    """The same request without a kill, median."""
    many_grant: float
    """The same as ``grant`` with 32 models loaded, median."""
    models: int
    """How many of those models the last supervisor knows; it must be all."""
    broken: int
    keeper: float
    """PSS of the keeper, without its fork server."""
    fork_server: float


def measure(kills: int) -> RecoveryTimes:
    """Kill the supervisors of a server with one model, then of one with many."""
    with LemonbusServer("tiny-chat", log_level="info", gateway_workers=0, load=[CHAT]) as server:
        server.wait_loaded(CHAT)
        usual = [_answered(server, CHAT)[0] for _ in range(20)]
        killed = [_killed(server, CHAT) for _ in range(kills)]
        keeper, fork_server = _keeper(server)
    many, known = _many_models(max(3, kills // 10))
    times = [seconds for seconds, _ in killed]
    return RecoveryTimes(
        kills=kills,
        grant=ms(median(times)),
        grant_p99=ms(percentile(times, 0.99)),
        answer=ms(median(usual)),
        many_grant=ms(median([seconds for seconds, _ in many])),
        models=known,
        broken=sum(status != 200 for _, status in (*killed, *many)),
        keeper=keeper,
        fork_server=fork_server,
    )


def _answered(server: LemonbusServer, model: str) -> tuple[float, int]:
    """Return how long a one-token answer takes, and its status."""
    began = time.perf_counter()
    status = server.client.chat(model, max_tokens=1).status
    return time.perf_counter() - began, status


def _killed(server: LemonbusServer, model: str) -> tuple[float, int]:
    """Kill the supervisor and send a request at once; return the seconds until the answer and its status."""
    time.sleep(_PAUSE_S)
    until(lambda: server.health()["status"] == "ok")
    pid = server.supervisor_pid
    began = time.perf_counter()
    processes.kill(pid)
    _, status = _answered(server, model)
    return time.perf_counter() - began, status


def _many_models(kills: int) -> tuple[list[tuple[float, int]], int]:
    names = [f"many-{number}" for number in range(MODELS)]
    with LemonbusServer(
        "tiny-chat", max_loaded_models=MODELS, ctx_size=256, log_level="info", gateway_workers=0
    ) as server:
        for name in names:
            (server.models / f"{name}.gguf").symlink_to(tiny_models() / "models" / "tiny-chat.gguf")
        for name in names:
            assert server.client.chat(f"extra.{name}", max_tokens=1).status == 200
        times = [_killed(server, f"extra.{names[turn]}") for turn in range(kills)]
        until(lambda: server.health()["status"] == "ok")
        return times, sum(each["state"] == "ready" for each in server.state()["models"])


def _keeper(server: LemonbusServer) -> tuple[float, float]:
    """Return the PSS of the keeper, and of the fork server."""
    return _megabytes(server.keeper_pid), _megabytes(server.fork_server_pid)


def _megabytes(pid: int) -> float:
    return round(processes.memory(pid) / 1e6, 1)
