"""Unsupported routes: 501 with an alternative."""

from __future__ import annotations

import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from tests.support.server import LemonbusServer


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
@pytest.mark.parametrize(
    ("route", "word"),
    [
        ("images/variations", "images/edits"),
        ("realtime", "audio/transcriptions"),
    ],
)
def test_unsupported_routes_name_an_alternative(
    shared_server: LemonbusServer, prefix: str, route: str, word: str
) -> None:
    answer = shared_server.client.post(f"{prefix}/{route}", {"prompt": "a cat"})
    assert (answer.status, answer.error["code"]) == (501, "unsupported_operation"), answer
    assert word in answer.error["message"]
    assert shared_server.client.get(f"{prefix}/{route}").status == (501 if route == "realtime" else 405)


@pytest.mark.parametrize(
    ("route", "word"), [("create", "extra_models_dir"), ("push", "hub"), ("blobs/sha256:00", "extra_models_dir")]
)
def test_what_ollama_has_beyond_models_names_an_alternative(
    shared_server: LemonbusServer, route: str, word: str
) -> None:
    answer = shared_server.client.post(f"/api/{route}", {"model": "m"})
    assert (answer.status, answer.json()["code"]) == (501, "unsupported_operation"), answer
    assert word in answer.json()["error"]


def test_live_audio_without_a_version_prefix(shared_server: LemonbusServer) -> None:
    assert shared_server.client.get("/realtime").error["code"] == "unsupported_operation"
