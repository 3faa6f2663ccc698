"""An engine that takes far more memory than was estimated: what it took counts at its next load, also after a restart, or if it died of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.fake_engines.llama_server import program
from tests.fake_engines.startup.large_engine import SIZE
from tests.support.models.tiny_models import link_models
from tests.support.server import LemonbusServer

MODEL = "extra.tiny-chat"


@pytest.fixture(autouse=True)
def _models(tmp_path: Path) -> None:
    link_models(tmp_path / "models", "tiny-chat")


def start(start_server: StartServer, folder: Path, engine: str = "large_engine", **more: float) -> LemonbusServer:
    """Start a server whose state and models outlive it."""
    return start_server(
        llama_server=program(folder, engine),
        llamacpp_backend="system",
        slots=1,
        state_dir=str(folder / "state"),
        extra_models_dir=str(folder / "models"),
        **more,
    )


def planned(server: LemonbusServer) -> tuple[int, bool]:
    """Return what the next load of the model counts with, in bytes of the host, and whether a former one was measured."""
    answer = server.client.post("/v1/load", {"model_name": MODEL, "dry_run": True})
    plan = answer.json()["plan"]
    return plan["places"][0]["need"], plan["measured"]


def test_what_an_engine_took_counts_at_its_next_load_and_after_a_restart(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start(start_server, tmp_path)
    estimated, measured = planned(server)
    assert (estimated < SIZE // 2, measured) == (True, False)
    assert server.client.post("/v1/load", {"model_name": MODEL}).status == 200
    assert server.client.post("/v1/unload", {"model_name": MODEL}).status == 200
    corrected, measured = planned(server)
    assert (corrected > SIZE, measured) == (True, True)
    server.stop()
    assert planned(start(start_server, tmp_path)) == (corrected, True)


def test_what_an_engine_took_counts_even_if_it_was_never_ready(start_server: StartServer, tmp_path: Path) -> None:
    server = start(start_server, tmp_path, "large_load", silence=4.0)
    refused = server.client.post("/v1/load", {"model_name": MODEL})
    assert (refused.status, refused.error["code"]) == (503, "load_failed"), "it was ended because it hangs"
    need, measured = planned(server)
    assert (need > SIZE, measured) == (True, True)
