"""Engines, workers and supervisors die in mid-turn of live audio: the turn is tried again or says so, and the session goes on."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.support import processes
from tests.support.audio import wav
from tests.support.clients.deferred_packages import websocket_client
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

MODEL, SLOW = "extra.tiny-whisper", "extra.slow-whisper"
TRANSCRIPT = CHAT_TEXT.strip()
TRANSCRIBED = "conversation.item.input_audio_transcription"
RATE = 4_000
LONG_S = 120
"""Four windows of half a second each for the slow model."""
DEADLINE = 60.0


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> LemonbusServer:
    server = start_module_server("tiny-whisper", "slow-whisper", breaker_deaths=1000)
    for model in (MODEL, SLOW):
        assert server.client.post("/v1/load", {"model_name": model}).status == 200
    return server


@pytest.fixture
def session(server: LemonbusServer) -> Iterator[Any]:
    address = f"ws://127.0.0.1:{server.port}/v1/realtime"
    with websocket_client.connect(address, open_timeout=DEADLINE) as session:
        receive_until(session, "session.created")
        yield session


def receive_until(session: Any, kind: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    while not events or events[-1]["type"] != kind:
        events.append(json.loads(session.recv(timeout=DEADLINE)))
    return events


def commit(session: Any, model: str, seconds: float) -> None:
    """Commit a turn for a model."""
    sound = base64.b64encode(wav(seconds, RATE)[44:]).decode()
    given = {"format": {"type": "audio/pcm", "rate": RATE}, "transcription": {"model": model}, "turn_detection": None}
    for event in (
        {"type": "session.update", "session": {"type": "transcription", "audio": {"input": given}}},
        {"type": "input_audio_buffer.append", "audio": sound},
        {"type": "input_audio_buffer.commit"},
    ):
        session.send(json.dumps(event))


def at_engine(server: LemonbusServer) -> bool:
    return bool(server.state()["granted"] == 1)


@pytest.mark.parametrize("what", ["engine", "worker"])
def test_a_turn_whose_engine_dies_before_the_first_text_is_asked_again(
    server: LemonbusServer, session: Any, what: str
) -> None:
    server.wait_loaded(MODEL)
    pid = server.engine_pid(MODEL)
    with processes.stopped(pid):
        commit(session, MODEL, 1)
        wait_for(lambda: at_engine(server), "the turn is at the engine")
        processes.kill(pid if what == "engine" else server.worker_pid(MODEL))
    assert receive_until(session, f"{TRANSCRIBED}.completed")[-1]["transcript"] == TRANSCRIPT
    commit(session, MODEL, 1)
    assert receive_until(session, f"{TRANSCRIBED}.completed")[-1]["transcript"] == TRANSCRIPT


def test_a_client_that_leaves_ends_its_turn_at_the_engine(server: LemonbusServer, session: Any) -> None:
    server.wait_loaded(SLOW)
    commit(session, SLOW, LONG_S)
    wait_for(lambda: at_engine(server), "the turn is at the engine", DEADLINE)
    session.close()
    ended = {"event": "request", "path": "/v1/realtime", "code": "cancelled", "audio_s": LONG_S}
    wait_for(lambda: any(ended.items() <= line.items() for line in server.lines), "it has ended", DEADLINE)
    wait_for(lambda: not at_engine(server), "the engine has stopped", DEADLINE)


def test_a_session_goes_on_when_the_supervisor_dies(server: LemonbusServer, session: Any) -> None:
    server.wait_loaded(SLOW)
    commit(session, SLOW, LONG_S)
    wait_for(lambda: at_engine(server), "the turn is at the engine", DEADLINE)
    server.kill_supervisor()
    commit(session, MODEL, 1)
    first, second = (receive_until(session, f"{TRANSCRIBED}.completed")[-1] for _ in range(2))
    assert first["usage"]["seconds"] == LONG_S
    assert second["transcript"] == TRANSCRIPT
