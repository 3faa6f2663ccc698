"""A hub with one small model, pulls of it, and the jobs of a server that download it."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients.http_exchange import HttpExchange
from tests.support.fakes.hub import Hub, gguf
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

REPOSITORY = "shop/tiny-GGUF"
MODEL = gguf(3_000_000)
HELD, ENOUGH = 1_500_000, 1_000_000
"""Bytes that the hub sends before it pauses; tests wait for them."""
NAME = "user.Tiny"
FILES = {REPOSITORY: {"tiny-Q4_0.gguf": MODEL, "mmproj-F16.gguf": gguf(9000, 2)}}
OwnHub = tuple[Hub, dict[str, Any]]


@contextmanager
def hub_with_settings(folder: Path) -> Iterator[OwnHub]:
    """A hub, and the settings of servers that share their state and know one model of it."""
    state = folder / "state"
    state.mkdir()
    item = {"checkpoint": f"{REPOSITORY}:Q4_0", "recipe": "llamacpp", "mmproj": "mmproj-F16.gguf"}
    (state / "user_models.json").write_text(json.dumps({"Tiny": item}))
    with Hub({repo: dict(files) for repo, files in FILES.items()}) as hub, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", hub.url)
        patch.setenv("HF_HOME", str(folder / "hf"))
        yield hub, {"state_dir": str(state), "cache_dir": str(folder / "cache"), "offline": False}


def forget_downloads(hub: Hub, server: LemonbusServer) -> None:
    """Remove what was downloaded, and the faults of the hub."""
    hub.rate = hub.hold_after = hub.wrong_size = hub.status = 0
    hub.released.set()
    wait_for(lambda: not server.state()["downloads"], "no download runs")
    shutil.rmtree(os.environ["HF_HOME"], ignore_errors=True)
    hub.repositories = {repo: dict(files) for repo, files in FILES.items()}
    hub.released.clear()
    hub.holding.clear()
    hub.transfers.clear()


def start(server: LemonbusServer, **fields: Any) -> HttpExchange:
    return server.client.start("POST", "/v1/pull", {"model_name": NAME, **fields})


def named(exchange: HttpExchange, name: str) -> list[Any]:
    return [event.json() for event in exchange.events if event.name == name]


def jobs(server: LemonbusServer) -> list[int]:
    return [process.pid for process in server.process_tree() if process.runs("workers.jobs.pull")]


def begun(exchange: HttpExchange) -> bool:
    return any(event["bytes_downloaded"] > ENOUGH for event in named(exchange, "progress"))


def files_of_jobs(server: LemonbusServer) -> list[str]:
    return [path.name for path in server.runtime.iterdir() if path.name.rpartition("-")[2].startswith("j")]


def kill_all(server: LemonbusServer) -> None:
    """Kill it as a power cut would: nothing is closed or removed."""
    server.expect_exit_code(-signal.SIGKILL)
    server.kill()
    server.assert_nothing_left()
