"""Unsupported routes: 501 with an alternative."""

from __future__ import annotations

import pytest

from gateway.api.common.dialect import VERSION_PREFIXES
from tests.support.clients.deferred_packages import openai
from tests.support.server import LemonbusServer


@pytest.mark.parametrize("prefix", VERSION_PREFIXES)
@pytest.mark.parametrize(
    ("route", "word"),
    [
        ("images/variations", "images/edits"),
        ("audio/speech", "text to speech"),
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


def test_speech_by_the_openai_client(shared_server: LemonbusServer) -> None:
    with (
        openai.OpenAI(base_url=f"http://127.0.0.1:{shared_server.port}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(openai.APIStatusError, match="text to speech"),
    ):
        client.audio.speech.create(model="tts", voice="alloy", input="hello")
