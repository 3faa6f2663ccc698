"""SIGKILL of the supervisor: the pins and times that calls asked for still count, and the idle time of a model goes on."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.faults.conftest import LOOP
from tests.faults.supervisors.recoveries import kill_supervisor, present_health
from tests.support.server import LemonbusServer
from tests.support.waiting import stays

CHAT = "extra.tiny-chat"


def loaded(server: LemonbusServer) -> dict[str, dict[str, Any]]:
    """The loaded models as health shows them."""
    return {each["model_name"]: each for each in present_health(server)["all_models_loaded"]}


def test_pins_and_idle_times_survive_the_supervisor(loop_server: LemonbusServer) -> None:
    server = loop_server
    assert server.client.post("/v1/unload", {}).status == 200, "what an earlier test has asked for them is forgotten"
    assert server.client.post("/v1/load", {"model": CHAT, "pinned": True}).status == 200
    assert server.client.post("/v1/load", {"model": LOOP, "ttl": 300}).status == 200
    before = loaded(server)
    stays(lambda: server.model_state(LOOP), "it is loaded", 1.0)
    killed_at = time.monotonic()
    kill_supervisor(server)
    after = loaded(server)
    # A worker says how long ago the last use was, and the next supervisor may read that later.
    late = 0.1 + time.monotonic() - killed_at
    assert after.keys() == before.keys()
    for name, pinned, ttl in ((CHAT, True, None), (LOOP, False, 300)):
        assert (after[name]["pid"], after[name]["pinned"], after[name]["ttl"]) == (before[name]["pid"], pinned, ttl)
        assert after[name]["last_use"] == pytest.approx(before[name]["last_use"], abs=late)
    assert after[LOOP]["expires_at"] == pytest.approx(before[LOOP]["expires_at"], abs=late), "it goes on"
    for name, pinned in ((CHAT, False), (LOOP, True)):
        assert server.client.post("/v1/pin", {"model": name, "pinned": pinned}).status == 200
    usual = server.settings.idle_ttl
    assert loaded(server)[CHAT]["ttl"] == usual
    kill_supervisor(server)
    changed = loaded(server)
    assert (changed[CHAT]["pinned"], changed[CHAT]["ttl"], changed[LOOP]["pinned"]) == (False, usual, True)
    assert server.client.post("/v1/pin", {"model": LOOP, "pinned": False}).status == 200
    assert (loaded(server)[LOOP]["pinned"], loaded(server)[LOOP]["ttl"]) == (False, 300)
