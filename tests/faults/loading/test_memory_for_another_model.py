"""A container with memory for two of three models: the one idle longest leaves for the third, and the log says what that freed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.support.control_groups import limit_memory, memory_group, used_memory
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

MIB = 1 << 20
RESERVE = 64 * MIB
MODELS = [f"extra.copy-{name}" for name in "abc"]


@pytest.fixture
def group() -> Iterator[Path]:
    with memory_group(4096 * MIB) as made:
        yield made


@pytest.fixture
def server(group: Path, start_server: StartServer) -> LemonbusServer:
    """A server in a container. Its models need much more than the processes of the server take or give back meanwhile."""
    server = start_server("tiny-chat", group=group, memory_reserve=RESERVE, ctx_size=32_768, slots=16)
    for model in MODELS:
        (server.models / f"{model.removeprefix('extra.')}.gguf").symlink_to(server.models / "tiny-chat.gguf")
    return server


def load(server: LemonbusServer, model: str, **more: object) -> dict[str, Any]:
    answer = server.client.post("/v1/load", {"model_name": model, **more})
    assert answer.status == 200, answer
    return dict(answer.json())


def host_memory(answer: dict[str, Any]) -> dict[str, int]:
    return next(each for each in answer["plan"]["places"] if each["place"] == "host")


def loaded(server: LemonbusServer) -> list[str]:
    return sorted(each["model_name"] for each in server.health()["all_models_loaded"])


def test_the_model_idle_longest_leaves_for_another_one(server: LemonbusServer, group: Path) -> None:
    first, second, third = MODELS
    load(server, first)
    load(server, second)
    host = host_memory(load(server, third, dry_run=True))
    need, untouched = host["need"], host["free"] - host["reserved"] - host["available"]
    assert need > 192 * MIB
    assert untouched > 0, "the two engines have not worked yet"
    limit_memory(group, used_memory(group) + RESERVE + untouched + need // 2)
    plan = load(server, third, dry_run=True)["plan"]
    assert [each["model"] for each in plan["evictions"]] == [first]
    assert loaded(server) == [first, second]
    load(server, third)
    assert loaded(server) == [second, third]
    wait_for(lambda: [each for each in server.lines if each["event"] == "model evicted"], "the eviction is logged")
    (line,) = [each for each in server.lines if each["event"] == "model evicted"]
    assert (line["model"], line["for_model"], line["for_request"], line["reason"]) == (first, third, "load", "memory")
    assert line["freed"]["host"] == line["free_after"]["host"] - line["free_before"]["host"]
    assert line["freed"]["host"] > need // 4
