"""A container whose memory is nearly used up: idle models leave in time, and the kernel kills no engine that is at work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.runtime.control_groups import Cgroup, find_cgroups
from supervisor.machine.cgroups import read_memory
from tests.conftest import StartServer
from tests.fake_engines.llama_server import program
from tests.support.clients.http_exchange import HttpExchange
from tests.support.control_groups import kernel_kills, memory_group
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

MIB = 1 << 20
LIMIT = 1024 * MIB
"""One thirty-second of it, below which idle models leave, is more than an engine of these models takes at once."""
LEAST = LIMIT // 32
LEFT = 200 * MIB
"""What another process in the container leaves to engines: enough for seven."""
BALLAST = """
import sys
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text("0")
held = []
for line in sys.stdin:
    held.append(b"x" * int(line))
    print("held", flush=True)
"""
"""Takes so many bytes of memory in a group for each line that it reads."""
STREAMING = ["extra.calm-1", "extra.calm-2"]
IDLE = [f"extra.copy-{number:02}" for number in range(12)]


@pytest.fixture
def group() -> Iterator[Path]:
    with memory_group(LIMIT) as made:
        yield made


class Ballast:
    """Another process in the container, which takes memory on request."""

    def __init__(self, group: Path) -> None:
        command = [sys.executable, "-c", BALLAST, str(group)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._group = group

    def leave(self, headroom: int) -> None:
        """Take all memory of the group but this much."""
        memory = read_memory(Cgroup("", self._group, find_cgroups(Path("/"))[0].version))
        assert memory is not None
        assert self.process.stdin
        assert self.process.stdout
        print(memory.limit - memory.kept - headroom, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "held\n"


@pytest.fixture
def ballast(group: Path) -> Iterator[Ballast]:
    made = Ballast(group)
    with made.process:
        yield made
        made.process.kill()


@pytest.fixture
def server(group: Path, start_server: StartServer, tmp_path: Path) -> LemonbusServer:
    """A server in a container."""
    engine = program(tmp_path, "slow_generation")
    server = start_server(
        "tiny-loop", group=group, llama_server=engine, max_loaded_models=20, slots=1, memory_reserve=-1
    )
    for model in [*STREAMING, *IDLE]:
        (server.models / f"{model.removeprefix('extra.')}.gguf").symlink_to(server.models / "tiny-loop.gguf")
    return server


def start_stream(server: LemonbusServer, model: str) -> HttpExchange:
    """Load a model whose engine sends a word every tenth of a second, and begin a stream that lasts for minutes."""
    assert server.client.post("/v1/load", {"model_name": model, "llamacpp_backend": "system"}).status == 200
    stream = server.client.start_chat(model, stream=True, max_tokens=4000)
    return stream.until(lambda it: it.events)


def assert_continues(stream: HttpExchange) -> None:
    """The stream goes on without an error. As long as it does, its model is not idle."""
    seen = len(stream.events)
    stream.until(lambda it: len(it.events) > seen + 2)
    assert not stream.error
    assert not stream.over


def test_idle_models_leave_for_others_before_the_kernel_kills(
    server: LemonbusServer, group: Path, ballast: Ballast
) -> None:
    ballast.leave(LEFT)
    streams = [start_stream(server, model) for model in STREAMING]
    for model in IDLE:
        assert server.client.chat(model, max_tokens=1).status == 200
    for stream in streams:
        assert_continues(stream)
    assert kernel_kills(group) == 0
    assert server.model_state(STREAMING[0]) == server.model_state(STREAMING[1]) == "ready"
    for stream in streams:
        stream.hang_up()
    counters = server.state()["counters"]
    assert counters["evictions"] > 0
    assert "engine_deaths" not in counters
    started = wait_for(lambda: len(starts := engines(server)) >= len(IDLE) + 2 and starts, "the log has all starts")
    assert len(started) == len(set(started)), "no engine was started twice"
    server.assert_idle()


def test_idle_models_leave_when_another_program_takes_the_memory(
    server: LemonbusServer, group: Path, ballast: Ballast
) -> None:
    stream = start_stream(server, STREAMING[0])
    for model in IDLE[:3]:
        assert server.client.chat(model, max_tokens=1).status == 200
    assert server.client.post("/v1/pin", {"model_name": IDLE[0], "pinned": True}).status == 200
    ballast.leave(LEAST - 6 * MIB)
    wait_for(lambda: not server.model_state(IDLE[1]), "the one that was idle longest, and is not pinned, has left")
    assert_continues(stream)
    assert server.model_state(IDLE[0]) == server.model_state(STREAMING[0]) == "ready"
    stream.hang_up()
    assert kernel_kills(group) == 0
    evicted = wait_for(lambda: evictions(server), "the log says why")
    assert (evicted[0]["model"], evicted[0]["limit"]) == (IDLE[1], LIMIT)
    assert evicted[0]["headroom"] < LEAST or evicted[0]["stalled"] > 0, "where processes stall, more is too little"
    freed = wait_for(lambda: evictions(server, "model evicted"), "the log says what that has freed")
    assert (freed[0]["model"], freed[0]["reason"]) == (IDLE[1], "pressure")
    assert freed[0]["freed"]["host"] > 0
    server.assert_idle()


def evictions(
    server: LemonbusServer, event: str = "unloading a model, memory is nearly used up"
) -> list[dict[str, Any]]:
    return [line for line in server.lines if line["event"] == event]


def engines(server: LemonbusServer) -> list[str]:
    """Return the models whose engines were started, in order."""
    return [line["model"] for line in server.lines if line["event"] == "engine started"]
