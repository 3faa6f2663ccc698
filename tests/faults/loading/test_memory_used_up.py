"""A container whose memory is nearly used up: idle models leave in time, and the kernel kills no engine that is at work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.fake_engines.llama_server import program
from tests.support.control_groups import kernel_kills, memory_group, memory_used
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

MIB = 1 << 20
LIMIT = 1024 * MIB
"""One thirty-second of it, below which idle models leave, is more than an engine of these models takes."""
LEFT = 200 * MIB
"""What another process in the container leaves to engines: enough for seven."""
BALLAST = """
import sys
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text("0")
held = b"x" * int(sys.argv[2])
print("ready", flush=True)
sys.stdin.read()
"""
STREAMING = ["extra.calm-1", "extra.calm-2"]
IDLE = [f"extra.copy-{number:02}" for number in range(12)]


@pytest.fixture
def group() -> Iterator[Path]:
    with memory_group(LIMIT) as made:
        yield made


@pytest.fixture
def server(group: Path, start_server: StartServer, tmp_path: Path) -> Iterator[LemonbusServer]:
    """A server in a container, beside another process that holds most of the memory."""
    engine = program(tmp_path, "slow_generation")
    server = start_server("tiny-loop", group=group, llama_server=engine, max_loaded_models=20, slots=1)
    for model in [*STREAMING, *IDLE]:
        (server.models / f"{model.removeprefix('extra.')}.gguf").symlink_to(server.models / "tiny-loop.gguf")
    size = LIMIT - memory_used(group) - LEFT
    command = [sys.executable, "-c", BALLAST, str(group), str(size)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as ballast:
        assert ballast.stdout
        assert ballast.stdout.readline() == b"ready\n"
        yield server
        ballast.kill()


def test_idle_models_leave_before_the_kernel_kills(server: LemonbusServer, group: Path) -> None:
    streams = []
    for model in STREAMING:
        load = {"model_name": model, "llamacpp_backend": "system"}
        assert server.client.post("/v1/load", load).status == 200
        streams.append(server.client.start_chat(model, stream=True, max_tokens=4000))
        streams[-1].until(lambda it: it.events)
    for model in IDLE:
        assert server.client.chat(model, max_tokens=1).status == 200
    for stream in streams:
        seen = len(stream.events)
        stream.until(lambda it: len(it.events) > seen + 2)  # noqa: B023 - called at once
        assert not stream.error
        assert not stream.over
    assert kernel_kills(group) == 0
    assert server.model_state(STREAMING[0]) == server.model_state(STREAMING[1]) == "ready"
    assert server.state()["counters"]["evictions"] > 0
    assert "engine_deaths" not in server.state()["counters"]
    started = wait_for(lambda: len(starts := engines(server)) >= len(IDLE) + 2 and starts, "the log has all starts")
    assert len(started) == len(set(started)), "no engine was started twice"
    for stream in streams:
        stream.hang_up()
    server.assert_idle()


def engines(server: LemonbusServer) -> list[str]:
    """Return the models whose engines were started, in order."""
    return [line["model"] for line in server.lines if line["event"] == "engine started"]
