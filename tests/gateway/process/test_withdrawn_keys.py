"""When a key is revoked, expires or loses a right, everything that it has begun ends: every form of a long answer, and the log stream."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import simple_websocket

from gateway.http.client_disconnect import CUT_DELAY_S
from protocol.config.api_keys import keys_of_settings
from protocol.config.settings import Settings
from protocol.messages import work
from protocol.messages.backend_installs import InstallBackend
from protocol.messages.calls import AbandonCall, CallResult, Progress
from protocol.messages.events import EventKind
from protocol.messages.log_stream import FollowLogs, LogSnapshot
from protocol.messages.metrics import FailedRequests
from protocol.messages.model_files import PullModel
from protocol.messages.peers import Welcome
from protocol.messages.responses import FinishResponse, StoreResponse
from protocol.wire import envelope
from tests.gateway.access.key_files import bearer, key, secret_of, store
from tests.gateway.fake_supervisor import wait_for
from tests.gateway.fake_worker import DEADLINE, ReceivedRequest
from tests.gateway.gateway_harness import GatewayHarness, running_gateway
from tests.gateway.process.chat_requests import CHAT, END_MARKS, PATH, STREAMS, open_request, stream_events
from tests.gateway.raw_http import parsed, read_to_end, read_until, request

REVOKED = "the API key ci has been revoked"
SOON = 0.3
INBOX_BYTES = 16 * 1024 * 1024
"""More than any test sends, so that a client that reads nothing is not too slow before its key is revoked."""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def shared(state: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayHarness]:
    folder = tmp_path_factory.mktemp("g") / "r"
    with running_gateway(
        folder, state_dir=str(state), answer_silence=SOON, header_silence=SOON, inbox_bytes=INBOX_BYTES
    ) as harness:
        yield harness


@pytest.fixture
def harness(shared: GatewayHarness, state: Path) -> GatewayHarness:
    give(state)
    shared.on_request = shared.received.put
    shared.forget()
    return shared


def give(state: Path, **rights: Any) -> None:
    """Write the key ``ci`` with these rights, and another key."""
    store(state, key("other", scopes=["admin"]), key("ci", **rights))


def revoke(state: Path) -> None:
    store(state, key("other", scopes=["admin"]))


def begun(harness: GatewayHarness) -> ReceivedRequest:
    """Grant the next request to the worker."""
    received = harness.next_request()
    harness.do(lambda: harness.grant(received))
    return received


def is_cancelled(harness: GatewayHarness, received: ReceivedRequest) -> None:
    assert isinstance(harness.cancel_of(received), work.Cancel)


@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_ends_with_the_error_of_its_dialect(harness: GatewayHarness, state: Path, path: str) -> None:
    with open_request(harness, {**STREAMS[path], "stream": True}, path, **bearer("ci")) as connection:
        received = begun(harness)
        harness.do(lambda: harness.publish(received, stream_events(received, path)))
        seen = read_until(connection, b"\r\n\r\n")
        revoke(state)
        status, _, body = parsed(seen + read_to_end(connection))
    is_cancelled(harness, received)
    assert status == 200
    last = body.strip().splitlines()[-1]
    assert REVOKED.encode() in last
    assert not any(mark in body for mark in END_MARKS)


def test_a_whole_answer_is_401(harness: GatewayHarness, state: Path) -> None:
    with open_request(harness, CHAT, **bearer("ci")) as connection:
        received = begun(harness)
        revoke(state)
        status, _, body = parsed(read_to_end(connection))
    is_cancelled(harness, received)
    assert (status, json.loads(body)["message"]) == (401, REVOKED)


def test_an_answer_whose_headers_were_sent_ahead_ends_with_the_error(harness: GatewayHarness, state: Path) -> None:
    with open_request(harness, {"prompt": "a cat"}, "/v1/images/generations", **bearer("ci")) as connection:
        received = begun(harness)
        seen = read_until(connection, b"\r\n\r\n")
        revoke(state)
        status, _, body = parsed(seen + read_to_end(connection))
    is_cancelled(harness, received)
    error = json.loads(body)["error"]
    assert (status, error["status_code"], error["message"]) == (200, 401, REVOKED)


def test_a_request_that_waits_in_the_queue_is_cancelled_there(harness: GatewayHarness, state: Path) -> None:
    with open_request(harness, CHAT, **bearer("ci")) as connection:
        received = harness.next_request()
        revoke(state)
        assert parsed(read_to_end(connection))[0] == 401
    is_cancelled(harness, received)


@pytest.mark.parametrize(
    ("later", "status", "reason"),
    [
        (lambda: {"scopes": ["metrics"]}, 403, "the API key ci does not have the scope inference any more"),
        (lambda: {"models": ["other*"]}, 403, "The API key ci may not use model tiny any more"),
        (lambda: {"expires": time.time() - 1}, 401, "the API key ci has expired"),
    ],
    ids=["scope", "model", "expiry"],
)
def test_rights_that_are_taken_away(
    harness: GatewayHarness, state: Path, later: Callable[[], dict[str, Any]], status: int, reason: str
) -> None:
    with open_request(harness, {**CHAT, "model": "alias"}, **bearer("ci")) as connection:
        received = begun(harness)
        give(state, models=["t*"])
        give(state, **later())
        got, _, body = parsed(read_to_end(connection))
    is_cancelled(harness, received)
    assert (got, json.loads(body)["message"]) == (status, reason)


def test_a_key_that_expires_by_itself(harness: GatewayHarness, state: Path) -> None:
    with open_request(harness, CHAT, **bearer("ci")) as connection:
        begun(harness)
        give(state, expires=time.time() + 0.5)
        status, _, body = parsed(read_to_end(connection))
    assert (status, json.loads(body)["message"]) == (401, "the API key ci has expired")


def test_an_alias_and_another_keys_request_go_on(harness: GatewayHarness, state: Path) -> None:
    """A model is checked by its registered name, and a change of the file does not affect the remaining keys."""
    give(state, models=["tiny"])
    with open_request(harness, {**CHAT, "model": "alias"}, **bearer("ci")) as connection:
        received = harness.next_request()
        harness.do(lambda: harness.publish(received, received.tokens(0, 1)))  # before the grant, which has the name
        with open_request(harness, CHAT, **bearer("other")) as other:
            begun(harness)
            store(state, key("ci", models=["tiny"]))
            assert parsed(read_to_end(other))[0] == 401
        harness.do(lambda: harness.grant(received))
        harness.do(lambda: harness.publish(received, [received.event(1, EventKind.DELTA, b"{}", 1), received.done(2)]))
        assert parsed(read_to_end(connection))[0] == 200


def test_each_request_of_a_kept_connection_is_judged_anew(harness: GatewayHarness, state: Path) -> None:
    """If one request ends because of its key, the next one, which has another key, is not cut off."""
    with harness.connect() as connection:
        connection.sendall(request("POST", PATH, CHAT, Connection="keep-alive", **bearer("ci")))
        begun(harness)
        revoke(state)
        assert b" 401 " in read_until(connection, b"}}")
        ended = time.monotonic()
        connection.sendall(request("POST", PATH, CHAT, Connection="keep-alive", **bearer("ci")))
        assert b" 401 " in read_until(connection, b"}}")
        connection.sendall(request("POST", PATH, CHAT, **bearer("other")))
        received = begun(harness)
        wait_for(lambda: time.monotonic() > ended + 2 * CUT_DELAY_S)
        harness.do(lambda: harness.publish(received, [received.event(0, EventKind.DELTA, b"{}", 1), received.done(1)]))
        assert parsed(read_to_end(connection))[0] == 200


def test_an_upload_that_ends_after_the_key_begins_nothing(harness: GatewayHarness, state: Path) -> None:
    body = json.dumps(CHAT).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    head += f"Authorization: {bearer('ci')['Authorization']}\r\nExpect: 100-continue\r\n\r\n"
    with harness.connect() as connection:
        connection.sendall(head.encode())
        assert b" 100 " in read_until(connection, b"\r\n\r\n")
        revoke(state)
        connection.sendall(body)
        assert parsed(read_to_end(connection))[0] == 401
    assert harness.received.empty()


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/v1/pull", {"model_name": "tiny", "stream": True}, PullModel),
        ("/v1/install", {"recipe": "llamacpp", "backend": "cpu", "stream": True}, InstallBackend),
        ("/api/pull", {"model": "tiny"}, PullModel),
    ],
)
def test_a_stream_of_progress_ends(
    harness: GatewayHarness, state: Path, path: str, body: dict[str, Any], message: type
) -> None:
    give(state, scopes=["admin"])
    with open_request(harness, body, path, **bearer("ci")) as connection:
        gateway, call = harness.called(message)
        harness.do(lambda: harness.send(gateway, Progress(call.number, "tiny.gguf", 1, 1, 5, 10, 50)))
        seen = read_until(connection, b"\r\n\r\n")
        give(state)
        _, _, answer = parsed(seen + read_to_end(connection))
    assert b"does not have the scope admin any more" in answer.strip().splitlines()[-1]
    harness.forgotten(call.number)


def test_a_client_that_does_not_read_is_cut_off(harness: GatewayHarness, state: Path) -> None:
    with open_request(harness, {**CHAT, "stream": True}, X_Request_ID="stuck", **bearer("ci")) as connection:
        received = begun(harness)
        data = b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % (b"x" * 500_000)
        for number in range(16):
            event = received.event(number, EventKind.DELTA, data, 1)
            harness.do(lambda event=event: harness.publish(received, [event]))
        read_until(connection, b"xxx")
        with open_request(harness, CHAT, **bearer("ci")) as later:
            answered = begun(harness)
            harness.do(lambda: harness.publish(answered, [answered.event(0, EventKind.DELTA, b"{}"), answered.done(1)]))
            assert parsed(read_to_end(later))[0] == 200, "by now the gateway has all that was published before"
        revoke(state)
        is_cancelled(harness, received)
        harness.do(lambda: harness.publish(received, [received.event(16, EventKind.DELTA, b"late", 1)]))
        wait_for(lambda: any(line.get("request_id") == "stuck" and line.get("broken") for line in harness.lines))
        seen = read_to_end(connection)
    assert REVOKED.encode() not in seen
    assert b"late" not in seen


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_in_the_background_fails_says_why_and_is_counted_once(
    harness: GatewayHarness, state: Path, stream: bool
) -> None:
    name = f"background-{stream}"
    body = {"model": name, "input": "hi", "background": True, "stream": stream}
    with open_request(harness, body, "/v1/responses", X_Request_ID=name, **bearer("ci")) as connection:
        gateway, call = harness.called(StoreResponse)
        harness.do(lambda: harness.send(gateway, CallResult(call.number), envelope.pack_payload(None)))
        received = begun(harness)
        if not stream:
            assert parsed(read_to_end(connection))[0] == 200
        revoke(state)
        is_cancelled(harness, received)
        gateway, finish = harness.called(FinishResponse)
        assert finish.id == call.id
        harness.do(lambda: harness.send(gateway, CallResult(finish.number), envelope.pack_payload(None)))
        if stream:
            last = parsed(read_to_end(connection))[2].strip().splitlines()[-1]
            assert REVOKED.encode() in last
            assert b'"response.failed"' in last
    wait_for(lambda: any(line.get("request_id") == name and "status" in line for line in harness.lines))
    harness.ping()
    failed = [each for report in harness.observed for each in report.failures if each.model == name]
    assert failed == [FailedRequests("ci", name, "unauthorized", 1)]


def test_a_key_of_the_settings_that_a_reload_has_changed(tmp_path: Path) -> None:
    """The gateway with the former settings only finishes its requests: the supervisor tells it the present keys."""
    with running_gateway(tmp_path / "r", state_dir=str(tmp_path), api_key=secret_of("old")) as harness:
        with open_request(harness, {**CHAT, "stream": True}, **bearer("old")) as connection:
            received = begun(harness)
            harness.do(lambda: harness.publish(received, received.tokens(0, 1)))
            seen = read_until(connection, b"\r\n\r\n")
            keys = keys_of_settings(Settings(api_key=secret_of("new")))
            welcome = Welcome(harness.boot, harness.supervisor.pid, keys=keys)
            harness.do(lambda: harness.send(received.gateway, welcome))
            _, _, body = parsed(seen + read_to_end(connection))
        assert b"the API key api_key has been revoked" in body.strip().splitlines()[-1]
        is_cancelled(harness, received)
        assert harness.get("/v1/params", **bearer("old"))[0] == 401


def log_reader(harness: GatewayHarness, headers: dict[str, str] | None = None) -> simple_websocket.Client:
    return simple_websocket.Client.connect(f"ws://127.0.0.1:{harness.port}/logs/stream", headers=headers)


@pytest.mark.parametrize("subscribed", [True, False])
def test_the_log_stream_closes(harness: GatewayHarness, state: Path, subscribed: bool) -> None:
    give(state, scopes=["logs"])
    reader = log_reader(harness, bearer("ci"))
    try:
        if subscribed:
            reader.send('{"type": "logs.subscribe"}')
            gateway, call = harness.called(FollowLogs)
            snapshot = envelope.pack_payload(LogSnapshot("boot", [], 0))
            harness.do(lambda: harness.send(gateway, CallResult(call.number), snapshot))
            assert json.loads(reader.receive(timeout=DEADLINE) or "{}")["type"] == "logs.snapshot"
        revoke(state)
        error = json.loads(reader.receive(timeout=DEADLINE) or "{}")
        assert (error["type"], error["error"]["code"], error["message"]) == ("error", "unauthorized", REVOKED)
        with pytest.raises(simple_websocket.ConnectionClosed) as closed:
            reader.receive(timeout=DEADLINE)
        assert (closed.value.reason, closed.value.message) == (1008, REVOKED)
        if subscribed:
            assert harness.called(AbandonCall)[1].number == call.number
    finally:
        reader.thread.join(DEADLINE)


def test_a_reader_without_a_key_is_closed_by_the_first_key(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with running_gateway(tmp_path / "r", state_dir=str(state)) as harness:
        reader = log_reader(harness)
        with open_request(harness, CHAT) as connection:
            received = begun(harness)
            store(state, key("ci"))
            assert json.loads(reader.receive(timeout=DEADLINE) or "{}")["error"]["code"] == "unauthorized"
            harness.do(
                lambda: harness.publish(received, [received.event(0, EventKind.DELTA, b"{}", 1), received.done(1)])
            )
            assert parsed(read_to_end(connection))[0] == 200, "what runs without a key may end"
        reader.thread.join(DEADLINE)
