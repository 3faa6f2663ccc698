"""Sessions of live audio in a real gateway: who may have one, how many, what ends one, and what then becomes of its turns."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect as connect_websocket

from gateway.access.connection_places import KEPT_FOR_ADMINS
from gateway.api.openai.realtime.resource import MAX_SESSIONS, MAX_SESSIONS_OF_KEY
from protocol.failures import Code, Failure
from protocol.messages import peers
from protocol.messages.events import EventKind
from tests.gateway.access.key_files import bearer, key, secret_of, store
from tests.gateway.fake_worker import DEADLINE, ReceivedRequest
from tests.gateway.gateway_harness import GatewayHarness, running_gateway

SOUND = base64.b64encode(bytes(32_000)).decode()
"""A second for a client that names no format."""
HELLO = b'data: {"type":"transcript.text.delta","delta":"Hello"}\n\ndata: {"type":"transcript.text.done","text":"Hello"}\n\n'
TRANSCRIBED = "conversation.item.input_audio_transcription"
Connect = Callable[..., Any]


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayHarness]:
    with running_gateway(tmp_path_factory.mktemp("server"), api_key="") as harness:
        yield harness


@pytest.fixture
def connect() -> Iterator[Connect]:
    with contextlib.ExitStack() as stack:

        def open_one(harness: GatewayHarness, query: str = "", **given: Any) -> Any:
            address = f"ws://127.0.0.1:{harness.port}/v1/realtime{query}"
            session = stack.enter_context(connect_websocket(address, open_timeout=DEADLINE, close_timeout=1, **given))
            assert receive(session)["type"] == "session.created"
            return session

        yield open_one


def receive(session: Any) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(session.recv(timeout=DEADLINE))
    return event


def receive_until(session: Any, kind: str) -> list[dict[str, Any]]:
    events = [receive(session)]
    while events[-1]["type"] != kind:
        events.append(receive(session))
    return events


def commit(session: Any) -> None:
    """Commit a turn of a second."""
    session.send(json.dumps({"type": "session.update", "session": {"model": "tiny", "turn_detection": None}}))
    session.send(json.dumps({"type": "input_audio_buffer.append", "audio": SOUND}))
    session.send(json.dumps({"type": "input_audio_buffer.commit"}))


def at_engine(harness: GatewayHarness) -> ReceivedRequest:
    """Grant the request of the next turn."""
    received = harness.next_request()
    harness.do(lambda: harness.grant(received))
    return received


def answer(harness: GatewayHarness, received: ReceivedRequest) -> None:
    """Send the transcript of a turn."""
    harness.do(lambda: harness.publish(received, [received.event(0, EventKind.DELTA, HELLO, 1), received.done(1)]))


def closed_with(session: Any) -> int:
    """Return the code with which a session is closed."""
    try:
        while True:
            receive(session)
    except ConnectionClosed as closed:
        return int(closed.rcvd.code) if closed.rcvd is not None else 0


def test_turns_are_transcribed_in_their_order(harness: GatewayHarness, connect: Connect) -> None:
    session = connect(harness, additional_headers={"X-Request-ID": "order"})
    commit(session)
    commit(session)
    for number in (1, 2):
        received = at_engine(harness)
        assert (received.message.label, received.message.endpoint) == (f"order.{number}", "audio/transcriptions")
        assert received.message.model == "tiny"
        answer(harness, received)
        assert receive_until(session, f"{TRANSCRIBED}.completed")[-1]["transcript"] == "Hello"


def test_a_turn_that_breaks_off_says_so_and_the_next_one_is_transcribed(
    harness: GatewayHarness, connect: Connect
) -> None:
    session = connect(harness)
    commit(session)
    commit(session)
    received = at_engine(harness)
    died = Failure(Code.BACKEND_DIED, "the engine has died")
    harness.do(lambda: harness.publish(received, [received.event(0, EventKind.DELTA, HELLO, 1)]))
    receive_until(session, f"{TRANSCRIBED}.delta")
    harness.do(lambda: harness.publish(received, [received.failed(1, died)]))
    error = receive_until(session, f"{TRANSCRIBED}.failed")[-1]["error"]
    assert (error["code"], error["model"]) == ("backend_died", "tiny")
    answer(harness, at_engine(harness))
    assert receive_until(session, f"{TRANSCRIBED}.completed")[-1]["transcript"] == "Hello"


def test_a_client_that_leaves_ends_its_turn(harness: GatewayHarness, connect: Connect) -> None:
    session = connect(harness)
    commit(session)
    received = at_engine(harness)
    session.close()
    assert harness.cancel_of(received).number == received.message.number


def test_a_session_survives_the_supervisor(harness: GatewayHarness, connect: Connect) -> None:
    harness.forget()
    session = connect(harness)
    commit(session)
    received = at_engine(harness)
    harness.do(lambda: harness.publish(received, [received.event(0, EventKind.DELTA, HELLO, 1)]))
    receive_until(session, f"{TRANSCRIBED}.delta")
    commit(session)
    harness.replace_supervisor()
    harness.do(lambda: harness.publish(received, [received.done(1)]))
    assert receive_until(session, f"{TRANSCRIBED}.completed")[-1]["transcript"] == "Hello"
    answer(harness, at_engine(harness))
    receive_until(session, f"{TRANSCRIBED}.completed")


def test_pages_that_may_use_models_may_open_sessions(tmp_path: Path, connect: Connect) -> None:
    with running_gateway(tmp_path / "r", api_key="", cors_origins=["https://app.example"]) as harness:
        for origin in ("http://localhost:3000", "https://app.example", None):
            connect(harness, origin=origin)
        with pytest.raises(InvalidStatus) as refused:
            connect(harness, origin="http://evil.example")
        assert refused.value.response.status_code == 403


def test_a_request_without_a_handshake_gets_an_error_body(harness: GatewayHarness) -> None:
    status, _, body = harness.get("/realtime")
    assert status == 426
    assert json.loads(body)["error"]["code"] == "invalid_request"
    assert harness.get("/realtime", Upgrade="websocket")[0] == 400
    assert harness.post("/v1/realtime", {})[0] == 501


def test_an_event_that_is_too_large_ends_the_session(harness: GatewayHarness, connect: Connect) -> None:
    session = connect(harness)
    with contextlib.suppress(ConnectionClosed):
        session.send("x" * (4 * 1024 * 1024 + 1))
    assert closed_with(session) == 1009


def test_audio_counts_as_request_bodies(tmp_path: Path, connect: Connect) -> None:
    with running_gateway(tmp_path / "r", api_key="", body_memory=40_000) as small:
        session = connect(small)
        commit(session)
        received = at_engine(small)
        commit(session)
        error = receive_until(session, "error")[-1]["error"]
        assert error["code"] == "overloaded"
        answer(small, received)
        receive_until(session, f"{TRANSCRIBED}.completed")
        commit(session)
        receive_until(session, "input_audio_buffer.committed")


def test_keys_their_subprotocols_and_their_places(tmp_path: Path, connect: Connect) -> None:
    state = tmp_path / "state"
    store(state, key("root", scopes=["admin"]), key("app"), key("logs", scopes=["logs"]))
    with running_gateway(tmp_path / "r", state_dir=str(state)) as keyed:
        for given, status in (({}, 401), ({"additional_headers": bearer("logs")}, 403)):
            with pytest.raises(InvalidStatus) as refused:
                connect(keyed, **given)
            assert refused.value.response.status_code == status
        page = connect(keyed, subprotocols=["realtime", f"openai-insecure-api-key.{secret_of('app')}"])
        assert page.subprotocol == "realtime"
        connect(keyed, f"?api_key={secret_of('app')}")
        for _ in range(MAX_SESSIONS_OF_KEY - 2):
            connect(keyed, additional_headers=bearer("app"))
        with pytest.raises(InvalidStatus) as refused:
            connect(keyed, additional_headers=bearer("app"))
        assert (refused.value.response.status_code, refused.value.response.headers["retry-after"]) == (429, "5")
        connect(keyed, additional_headers=bearer("root"))
        assert MAX_SESSIONS - KEPT_FOR_ADMINS > MAX_SESSIONS_OF_KEY
        commit(page)
        at_engine(keyed)
        store(state, key("root", scopes=["admin"]))
        error = receive_until(page, "error")[-1]["error"]
        assert (error["code"], error["message"]) == ("unauthorized", "the API key app has been revoked")
        assert closed_with(page) == 1008


def test_a_session_without_a_key_is_closed_by_the_first_key(tmp_path: Path, connect: Connect) -> None:
    with running_gateway(tmp_path / "r", state_dir=str(tmp_path / "state")) as harness:
        session = connect(harness)
        store(tmp_path / "state", key("app"))
        assert receive_until(session, "error")[-1]["error"]["code"] == "unauthorized"
        assert closed_with(session) == 1008


def test_a_process_that_ends_lets_the_running_turn_end(tmp_path: Path, connect: Connect) -> None:
    with running_gateway(tmp_path / "r", api_key="") as harness:
        session, idle = connect(harness), connect(harness)
        commit(session)
        commit(session)
        received = at_engine(harness)
        (hello,) = harness.gateways
        harness.do(lambda: harness.send(hello.id, peers.Draining(30.0)))
        assert receive_until(idle, "error")[-1]["error"]["code"] == "draining"
        assert closed_with(idle) == 1001
        answer(harness, received)
        receive_until(session, f"{TRANSCRIBED}.completed")
        assert receive_until(session, f"{TRANSCRIBED}.failed")[-1]["error"]["code"] == "draining"
        assert receive_until(session, "error")[-1]["error"]["code"] == "draining"
        assert closed_with(session) == 1001
