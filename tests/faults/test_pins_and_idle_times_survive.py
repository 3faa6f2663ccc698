"""SIGKILL of the supervisor: what calls asked for a loaded model still counts, and its idle time goes on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import StartServer
from tests.support.server import LemonbusServer
from tests.support.waiting import stays, wait_for

CHAT, EMBED = "extra.tiny-chat", "extra.tiny-embed"


def loaded(server: LemonbusServer) -> dict[str, dict[str, Any]]:
    """The loaded models as health shows them."""
    return {each["model_name"]: each for each in server.health()["all_models_loaded"]}


def test_pins_and_idle_times_survive_the_supervisor(start_server: StartServer) -> None:
    server = start_server("tiny-chat", "tiny-embed", idle_ttl=500)
    assert server.client.post("/v1/load", {"model": CHAT, "pinned": True}).status == 200
    assert server.client.post("/v1/load", {"model": EMBED, "ttl": 300}).status == 200
    before = loaded(server)
    stays(lambda: server.model_state(EMBED), "it is loaded", 1.0)
    server.kill_supervisor()
    after = wait_for(lambda: now if (now := loaded(server)).keys() == before.keys() else None, "they are known again")
    for name, pinned, ttl in ((CHAT, True, 0), (EMBED, False, 300)):
        assert (after[name]["pid"], after[name]["pinned"], after[name]["ttl"]) == (before[name]["pid"], pinned, ttl)
        assert after[name]["last_use"] == pytest.approx(before[name]["last_use"], abs=0.8)
    assert after[EMBED]["expires_at"] == pytest.approx(before[EMBED]["expires_at"], abs=0.8), "it goes on"
    assert server.client.post("/v1/pin", {"model": CHAT, "pinned": False}).status == 200
    assert loaded(server)[CHAT]["ttl"] == 500
