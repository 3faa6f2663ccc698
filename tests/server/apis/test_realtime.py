"""Transcription of live audio through the whole server: OpenAI's own client, its beta, and a client of Lemonade."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.audio import wav
from tests.support.clients.deferred_packages import openai, websocket_client
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

MODEL, SLOW = "extra.tiny-whisper", "extra.slow-whisper"
TRANSCRIPT = CHAT_TEXT.strip()
DEADLINE = 60.0
# OpenAI's package connects without a context manager.
pytestmark = pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager:DeprecationWarning")
Connect = Callable[..., Any]


def noise(seconds: float, rate: int = 24_000) -> str:
    """Return live audio as an event has it."""
    return base64.b64encode(wav(seconds, rate)[44:]).decode()


def silence(seconds: float, rate: int = 24_000) -> str:
    return base64.b64encode(bytes(2 * round(seconds * rate))).decode()


def client(server: LemonbusServer, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(**addresses(server), api_key=key, max_retries=0)


def addresses(server: LemonbusServer) -> dict[str, str]:
    """Return both addresses: with the first alone, the beta and older packages open a WebSocket over TLS."""
    address = f"127.0.0.1:{server.port}/v1"
    return {"base_url": f"http://{address}", "websocket_base_url": f"ws://{address}"}


def transcription(**given: Any) -> dict[str, Any]:
    """Return the session of an update in OpenAI's form."""
    transcriber = {"model": MODEL, "language": "en"}
    audio = {"input": {"format": {"type": "audio/pcm", "rate": 24_000}, "transcription": transcriber, **given}}
    return {"type": "transcription", "audio": audio}


@pytest.fixture
def connect(shared_server: LemonbusServer) -> Iterator[Connect]:
    """Connects clients that know nothing of OpenAI's package."""
    with contextlib.ExitStack() as stack:

        def open_one(query: str = "", path: str = "/v1/realtime", server: Any = shared_server, **given: Any) -> Any:
            address = f"ws://127.0.0.1:{server.port}{path}{query}"
            return stack.enter_context(websocket_client.connect(address, open_timeout=DEADLINE, **given))

        yield open_one


def send(socket: Any, kind: str, **fields: Any) -> None:
    socket.send(json.dumps({"type": kind, **fields}))


def receive(socket: Any) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(socket.recv(timeout=DEADLINE))
    return event


def receive_until(socket: Any, kind: str) -> list[dict[str, Any]]:
    """Return the events up to the first one of this kind."""
    events = [receive(socket)]
    while events[-1]["type"] != kind:
        events.append(receive(socket))
    return events


def kinds(events: list[Any]) -> list[str]:
    return [event["type"] if isinstance(event, dict) else event.type for event in events]


TRANSCRIBED = "conversation.item.input_audio_transcription"
COMMITTED = ["input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"]


def test_the_openai_package(shared_server: LemonbusServer) -> None:
    with (
        client(shared_server) as openai_client,
        openai_client.realtime.connect(extra_query={"intent": "transcription"}) as session,
    ):
        created = session.recv()
        assert created.type == "session.created"
        session.session.update(session=transcription(turn_detection=None))
        updated = session.recv()
        assert isinstance(updated, openai.types.realtime.SessionUpdatedEvent)
        assert isinstance(updated.session, openai.types.realtime.RealtimeTranscriptionSessionCreateRequest)
        [given] = [updated.session.audio and updated.session.audio.input]
        assert given is not None
        assert given.transcription is not None
        assert (given.transcription.model, given.turn_detection) == (MODEL, None)
        for _ in range(2):
            session.input_audio_buffer.append(audio=noise(0.6))
            session.input_audio_buffer.append(audio=noise(0.6))
            session.input_audio_buffer.commit()
        events = []
        while kinds(events).count(f"{TRANSCRIBED}.completed") < 2:
            events.append(session.recv())
        session.input_audio_buffer.clear()
        assert session.recv().type == "input_audio_buffer.cleared"
    committed = [event for event in events if event.type == "input_audio_buffer.committed"]
    assert [event.previous_item_id for event in committed] == [None, committed[0].item_id]
    transcribed = [event for event in events if event.type == f"{TRANSCRIBED}.completed"]
    assert [event.item_id for event in transcribed] == [event.item_id for event in committed]
    assert [event.transcript for event in transcribed] == [TRANSCRIPT] * 2
    assert transcribed[0].usage.seconds == 1.2
    deltas = "".join(event.delta for event in events if event.type == f"{TRANSCRIBED}.delta")
    assert deltas == f" {TRANSCRIPT}" * 2 or deltas == TRANSCRIPT * 2


def test_the_asynchronous_package_with_server_vad(shared_server: LemonbusServer) -> None:
    async def received() -> list[Any]:
        events: list[Any] = []
        async with (
            openai.AsyncOpenAI(**addresses(shared_server), api_key="none") as openai_client,
            openai_client.realtime.connect(model=MODEL) as session,
        ):
            detection = {"type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 400}
            await session.session.update(session=transcription(turn_detection=detection))
            for sound in (silence(1), noise(1), silence(1), noise(0.5), silence(0.6)):
                await session.input_audio_buffer.append(audio=sound)
            async with asyncio.timeout(DEADLINE):
                while kinds(events).count(f"{TRANSCRIBED}.completed") < 2:
                    events.append(await session.recv())
        return events

    events = asyncio.run(received())
    started, stopped = "input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped"
    assert kinds(events)[:2] == ["session.created", "session.updated"]
    own = [event for event in events if not event.type.startswith(TRANSCRIBED)][2:]
    assert kinds(own) == [started, stopped, *COMMITTED] * 2
    assert (own[0].audio_start_ms, own[1].audio_end_ms) == (700, 2_400)
    assert {event.item_id for event in own[:3]} == {own[3].item.id}
    assert [event.transcript for event in events if event.type == f"{TRANSCRIBED}.completed"] == [TRANSCRIPT] * 2


def test_the_beta_of_the_openai_package(shared_server: LemonbusServer) -> None:
    with (
        client(shared_server) as openai_client,
        openai_client.beta.realtime.connect(model=MODEL, extra_query={"intent": "transcription"}) as session,
    ):
        assert session.recv().type == "transcription_session.created"
        settings = {
            "input_audio_format": "g711_ulaw",
            "input_audio_transcription": {"model": MODEL},
            "turn_detection": None,
        }
        session.transcription_session.update(session=settings)
        updated = session.recv()
        assert updated.type == "transcription_session.updated"
        assert (updated.session.input_audio_format, updated.session.turn_detection) == ("g711_ulaw", None)
        session.input_audio_buffer.append(audio=base64.b64encode(wav(0.5)[44:8_044]).decode())
        session.input_audio_buffer.commit()
        events = [session.recv()]
        while events[-1].type != f"{TRANSCRIBED}.completed":
            events.append(session.recv())
    assert kinds(events)[:2] == ["input_audio_buffer.committed", "conversation.item.created"]
    assert events[-1].transcript == TRANSCRIPT
    assert events[-1].usage.seconds == 1.0


@pytest.mark.parametrize("path", ["/realtime", "/v1/realtime", "/api/v1/realtime", "/v0/realtime", "/api/v0/realtime"])
def test_a_client_of_lemonade(shared_server: LemonbusServer, connect: Connect, path: str) -> None:
    assert shared_server.health()["websocket_port"] == shared_server.port
    socket = connect(f"?model={MODEL}", path)
    assert receive(socket)["session"]["id"]
    detection = {"threshold": 0.01, "silence_duration_ms": 300, "prefix_padding_ms": 250}
    send(socket, "session.update", session={"model": MODEL, "turn_detection": detection})
    assert receive(socket)["session"]["model"] == MODEL
    for sound in (noise(0.5, 16_000), silence(0.5, 16_000)):
        send(socket, "input_audio_buffer.append", audio=sound)
    events = receive_until(socket, f"{TRANSCRIBED}.completed")
    assert kinds(events)[:2] == ["input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped"]
    assert events[-1]["transcript"] == TRANSCRIPT
    assert events[-1]["usage"]["seconds"] == 0.8


@pytest.mark.parametrize(
    ("event", "code", "param"),
    [
        ({"type": "response.create"}, "unsupported_operation", "type"),
        ({"type": "nonsense", "event_id": "e7"}, "invalid_request", "type"),
        ({"type": "input_audio_buffer.commit"}, "invalid_request", None),
        ({"type": "input_audio_buffer.append", "audio": "%%"}, "invalid_request", "audio"),
        ({"type": "session.update", "session": {"type": "realtime"}}, "unsupported_operation", "session.type"),
        ({"type": "session.update", "session": {"model": 7}}, "invalid_request", "session.model"),
    ],
)
def test_a_wrong_event_is_answered_and_the_session_goes_on(
    connect: Connect, event: dict[str, Any], code: str, param: str | None
) -> None:
    socket = connect()
    receive(socket)
    socket.send(json.dumps(event))
    error = receive(socket)
    assert (error["type"], error["error"]["code"], error["error"]["param"]) == ("error", code, param), error
    assert error["error"]["event_id"] == event.get("event_id")
    send(socket, "input_audio_buffer.clear")
    assert receive(socket)["type"] == "input_audio_buffer.cleared"


def test_a_turn_that_fails_says_so_and_the_session_goes_on(connect: Connect) -> None:
    socket = connect("?model=no-such-model&intent=transcription", additional_headers={"X-Request-ID": "talk"})
    assert receive(socket)["session"]["audio"]["input"]["format"]["rate"] == 24_000
    for model in (None, MODEL):
        if model is not None:
            send(socket, "session.update", session=transcription())
        send(socket, "input_audio_buffer.append", audio=noise(0.5))
        send(socket, "input_audio_buffer.commit")
    failed = receive_until(socket, f"{TRANSCRIBED}.failed")[-1]
    assert (failed["error"]["code"], failed["error"]["request_id"]) == ("model_not_found", "talk.1")
    assert receive_until(socket, f"{TRANSCRIBED}.completed")[-1]["transcript"] == TRANSCRIPT


def test_each_turn_is_a_request(shared_server: LemonbusServer, connect: Connect) -> None:
    socket = connect(f"?model={MODEL}", additional_headers={"X-Request-ID": "counted"})
    send(socket, "input_audio_buffer.append", audio=noise(0.5, 16_000))
    send(socket, "input_audio_buffer.commit")
    receive_until(socket, f"{TRANSCRIBED}.completed")
    own = {"event": "request", "request_id": "counted.1"}
    [line] = wait_for(
        lambda: [line for line in shared_server.lines if own.items() <= line.items()], "the log line of the turn"
    )
    assert (line["method"], line["model"], line["audio_s"], line["status"]) == ("WEBSOCKET", MODEL, 0.5, 200)
    counted = b'endpoint="audio/transcriptions"'
    wait_for(lambda: counted in shared_server.client.get("/metrics").body, "it is counted as a transcription")
