"""A real gateway process when things go well: streams, whole answers, kept connections, large bodies."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
import psutil

from protocol.messages import work
from protocol.messages.events import EventKind
from protocol.messages.health import GetHealth
from protocol.wire import endpoints
from tests.gateway.fake_supervisor import wait_for
from tests.gateway.fake_worker import CHUNK, ReceivedRequest
from tests.gateway.gateway_harness import GatewayHarness, running_gateway
from tests.gateway.process.chat_requests import ANSWER, CHAT, PATH, STREAM, answer_whole, open_request
from tests.gateway.raw_http import parsed, read_to_end, read_until, request


def test_a_stream_is_written_as_it_arrives_and_ends_with_done(harness: GatewayHarness) -> None:
    with open_request(harness) as connection:
        received = harness.next_request()
        assert (received.message.model, received.message.endpoint, received.message.stream) == (
            "tiny",
            "chat/completions",
            True,
        )
        assert msgspec.json.decode(received.body) == STREAM
        harness.do(lambda: harness.grant(received))
        harness.do(lambda: harness.publish(received, received.tokens(0, 1)))
        seen = read_until(connection, CHUNK % 0)
        assert b"text/event-stream" in seen
        harness.do(lambda: harness.publish(received, [*received.tokens(1, 3), received.done(3)]))
        status, _, body = parsed(seen + read_to_end(connection))
    assert status == 200
    assert body == b"".join(CHUNK % seq for seq in range(3)) + b"data: [DONE]\n\n"


def test_a_whole_answer_is_passed_on_unchanged(harness: GatewayHarness) -> None:
    harness.on_request = lambda received: answer_whole(harness, received)
    status, headers, body = harness.post(PATH, CHAT, X_Request_ID="mine.1")
    assert (status, body) == (200, ANSWER)
    assert headers["x-request-id"] == "mine.1"
    assert headers["content-length"] == str(len(ANSWER))


def test_all_four_prefixes_lead_to_it(harness: GatewayHarness) -> None:
    harness.on_request = lambda received: answer_whole(harness, received)
    for prefix in ("/v1", "/api/v1", "/v0", "/api/v0"):
        assert harness.post(f"{prefix}/chat/completions", CHAT)[2] == ANSWER


def test_completions_and_embeddings(harness: GatewayHarness) -> None:
    def serve(received: ReceivedRequest) -> None:
        harness.grant(received)
        harness.publish(
            received,
            [received.event(0, EventKind.DELTA, b'{"choices":[{"text":" yes","index":0}]}', 3), received.done(1)],
        )

    harness.on_request = serve
    assert msgspec.json.decode(harness.post("/v1/completions", {"prompt": "say", "echo": True})[2])["text"] == "say yes"
    harness.on_request = harness.received.put
    with open_request(harness, {"input": ["a", "b", "c"]}, "/v1/embeddings"):
        received = harness.next_request()
        assert (received.message.endpoint, received.message.weight, received.message.model) == ("embeddings", 3, "")


def test_two_requests_with_one_id_get_their_own_answers(harness: GatewayHarness) -> None:
    with open_request(harness, X_Request_ID="same") as one, open_request(harness, X_Request_ID="same") as two:
        arrived = [harness.next_request(), harness.next_request()]
        for received in reversed(arrived):
            harness.do(lambda received=received: harness.grant(received))
            text = b"data: %d\n\n" % received.message.number
            harness.do(
                lambda received=received, text=text: harness.publish(
                    received, [received.event(0, EventKind.DELTA, text, 1), received.done(1)]
                )
            )
        bodies = {parsed(read_to_end(connection))[2] for connection in (one, two)}
    assert bodies == {b"data: %d\n\ndata: [DONE]\n\n" % received.message.number for received in arrived}


def test_a_connection_is_kept_for_the_next_request(harness: GatewayHarness) -> None:
    harness.on_request = lambda received: answer_whole(harness, received)
    with harness.connect() as connection:
        for _ in range(3):
            connection.sendall(request("POST", PATH, CHAT, Connection="keep-alive"))
            read_until(connection, ANSWER)


def test_a_pipelined_request_is_not_a_hang_up(harness: GatewayHarness) -> None:
    with harness.connect() as connection:
        connection.sendall(request("POST", PATH, CHAT, Connection="keep-alive") + request("POST", PATH, CHAT))
        for _ in range(2):
            received = harness.next_request()
            harness.do(lambda received=received: answer_whole(harness, received))
        assert read_to_end(connection).count(ANSWER) == 2


def test_a_large_body_travels_as_a_file_that_is_gone_afterwards(harness: GatewayHarness) -> None:
    large = {**CHAT, "padding": "x" * 5000}
    with open_request(harness, large) as connection:
        received = harness.next_request()
        file = endpoints.spool(harness.runtime) / received.message.spool
        assert received.body == b""
        assert msgspec.json.decode(file.read_bytes()) == large
        assert file.stat().st_mode & 0o777 == 0o600
        harness.do(lambda: answer_whole(harness, received))
        read_to_end(connection)
    wait_for(lambda: not file.exists())


def test_a_monitor_does_not_wait_for_a_burst_before_it(tmp_path: Path) -> None:
    burst = 100
    order: list[type] = []
    with running_gateway(tmp_path / "r") as harness, contextlib.ExitStack() as stack:
        assert harness.gateway is not None
        (worker,) = psutil.Process(harness.gateway.pid).children()
        harness.on_request = lambda received: order.append(type(received.message))
        harness.others.put = lambda other, **_: order.append(type(other[1]))  # type: ignore[method-assign]
        worker.suspend()
        for _ in range(burst):
            stack.enter_context(open_request(harness, CHAT))
        monitor = stack.enter_context(harness.connect())
        monitor.sendall(request("GET", "/v1/health", b""))
        worker.resume()
        wait_for(lambda: order.count(work.SubmitRequest) == burst)
    assert order.index(GetHealth) < burst / 2
