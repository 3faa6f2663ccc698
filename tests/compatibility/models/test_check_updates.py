"""``POST models/check-updates`` with a local hub: what is newer there, what cannot be checked, and that nothing is downloaded."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compatibility.hub_server import pull
from tests.support.fakes.hub import Hub, gguf
from tests.support.server import LemonbusServer

REPOSITORY, FILE, NAME = "shop/Ours-GGUF", "Ours-Q4_K_M.gguf", "user.Ours"
OURS = {"model_name": NAME, "checkpoint": f"{REPOSITORY}:Q4_K_M", "recipe": "llamacpp"}


def check(server: LemonbusServer) -> dict[str, Any]:
    answer = server.client.post("/api/v1/models/check-updates", {})
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json()
    return found


def test_a_model_is_newer_if_its_own_file_changed(
    server: LemonbusServer, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pull(server, **OURS)[0] == 200
    transfers = len(hub.transfers)
    same = check(server)
    assert (same["status"], same["updates_available"], same["models"]) == ("success", 0, [])
    assert same["failed_models"] == {}
    monkeypatch.setitem(hub.repositories[REPOSITORY], "README.md", b"a new text")
    assert check(server)["models"] == [], "the README does not count"
    monkeypatch.setitem(hub.repositories[REPOSITORY], FILE, gguf(2000, 9))
    newer = check(server)
    assert (newer["updates_available"], newer["models"]) == (1, [NAME])
    assert len(hub.transfers) == transfers, "nothing was downloaded"


def test_a_hub_that_does_not_answer_is_told_by_model(server: LemonbusServer, hub: Hub) -> None:
    assert pull(server, **OURS)[0] == 200
    hub.status = 404
    found = check(server)
    assert (found["status"], found["models"]) == ("failed", [])
    assert list(found["failed_models"]) == [NAME]
    assert found["failed_models"][NAME] == "the hub answered 404"


def test_without_downloaded_models_the_hub_is_not_asked(server: LemonbusServer, hub: Hub) -> None:
    requests = hub.requests
    assert check(server)["models"] == []
    assert hub.requests == requests


def test_offline_it_is_a_conflict(shared_server: LemonbusServer) -> None:
    """The shared server is offline, as all tests without a hub."""
    answer = shared_server.client.post("/v1/models/check-updates", {})
    assert (answer.status, answer.error["code"]) == (409, "offline"), answer
