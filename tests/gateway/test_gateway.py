"""A real gateway process against a stand-in house: what clients see when things go well and when they do not."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from protocol import admin, endpoints, staff, work
from protocol.events import Kind
from protocol.failures import Code, Failure
from tests.gateway.standin import (
    CHUNK,
    DEADLINE,
    Asked,
    StandIn,
    dechunked,
    parsed,
    read_to_end,
    read_until,
    request,
    standing,
    wait_for,
)

CHAT: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
STREAM = {**CHAT, "stream": True}
PATH = "/v1/chat/completions"
ANSWER = b'{"choices":[{"index":0,"message":{"content":"yes"}}]}'


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with standing(tmp_path_factory.mktemp("g") / "r", body_limit=1_000_000, spool_over=1000) as house:
        yield house


@pytest.fixture
def house(shared: StandIn) -> StandIn:
    shared.on_ask = shared.asked.put
    for news in (shared.asked, shared.cancelled, shared.others):
        with contextlib.suppress(Exception):
            while True:
                news.get_nowait()
    if "w1" not in shared.workers:
        shared.add_worker("w1")
    return shared


@contextlib.contextmanager
def opened(house: StandIn, body: Any = STREAM, path: str = PATH, **headers: str) -> Iterator[socket.socket]:
    with house.connect() as connection:
        connection.sendall(request("POST", path, body, **headers))
        yield connection


def error_of(response: tuple[int, dict[str, str], bytes]) -> dict[str, Any]:
    """Check the JSON error body of the rules; return its ``error``."""
    status, headers, body = response
    assert status >= 400
    assert headers["content-type"] == "application/json"
    document = msgspec.json.decode(body)
    error: dict[str, Any] = document["error"]
    assert document["status"] == "error"
    assert document["message"] == error["message"]
    assert set(error) >= {"message", "type", "code", "param", "request_id"}
    assert error["request_id"] == headers["x-request-id"]
    return error


def serve_whole(house: StandIn, asked: Asked) -> None:
    house.grant(asked)
    house.publish(asked, [asked.event(0, Kind.DELTA, ANSWER, 3), asked.done(1)])


# Answers


def test_a_stream_is_written_as_it_comes_and_ends_with_done(house: StandIn) -> None:
    with opened(house) as connection:
        asked = house.next_ask()
        assert (asked.ask.model, asked.ask.endpoint, asked.ask.stream) == ("tiny", "chat/completions", True)
        assert msgspec.json.decode(asked.body) == STREAM
        house.do(lambda: house.grant(asked))
        house.do(lambda: house.publish(asked, asked.tokens(0, 1)))
        seen = read_until(connection, CHUNK % 0)
        assert b"text/event-stream" in seen
        house.do(lambda: house.publish(asked, [*asked.tokens(1, 3), asked.done(3)]))
        status, _, body = parsed(seen + read_to_end(connection))
    assert status == 200
    assert body == b"".join(CHUNK % seq for seq in range(3)) + b"data: [DONE]\n\n"


def test_a_whole_answer_comes_as_it_was_made(house: StandIn) -> None:
    house.on_ask = lambda asked: serve_whole(house, asked)
    status, headers, body = house.post(PATH, CHAT, X_Request_ID="mine.1")
    assert (status, body) == (200, ANSWER)
    assert headers["x-request-id"] == "mine.1"
    assert headers["content-length"] == str(len(ANSWER))


def test_all_four_prefixes_lead_to_it(house: StandIn) -> None:
    house.on_ask = lambda asked: serve_whole(house, asked)
    for prefix in ("/v1", "/api/v1", "/v0", "/api/v0"):
        assert house.post(f"{prefix}/chat/completions", CHAT)[2] == ANSWER


def test_completions_and_embeddings(house: StandIn) -> None:
    def serve(asked: Asked) -> None:
        house.grant(asked)
        house.publish(asked, [asked.event(0, Kind.DELTA, b'{"choices":[{"text":" yes","index":0}]}', 3), asked.done(1)])

    house.on_ask = serve
    assert msgspec.json.decode(house.post("/v1/completions", {"prompt": "say", "echo": True})[2])["text"] == "say yes"
    house.on_ask = house.asked.put
    with opened(house, {"input": ["a", "b", "c"]}, "/v1/embeddings"):
        asked = house.next_ask()
        assert (asked.ask.endpoint, asked.ask.weight, asked.ask.model) == ("embeddings", 3, "")


def test_two_requests_with_one_id_get_their_own_answers(house: StandIn) -> None:
    with opened(house, X_Request_ID="same") as one, opened(house, X_Request_ID="same") as two:
        asks = [house.next_ask(), house.next_ask()]
        for asked in reversed(asks):
            house.do(lambda asked=asked: house.grant(asked))
            text = b"data: %d\n\n" % asked.ask.number
            house.do(
                lambda asked=asked, text=text: house.publish(
                    asked, [asked.event(0, Kind.DELTA, text, 1), asked.done(1)]
                )
            )
        bodies = {parsed(read_to_end(connection))[2] for connection in (one, two)}
    assert bodies == {b"data: %d\n\ndata: [DONE]\n\n" % asked.ask.number for asked in asks}


def test_a_connection_is_kept_for_the_next_request(house: StandIn) -> None:
    house.on_ask = lambda asked: serve_whole(house, asked)
    with house.connect() as connection:
        for _ in range(3):
            connection.sendall(request("POST", PATH, CHAT, Connection="keep-alive"))
            read_until(connection, ANSWER)


def test_a_pipelined_request_is_no_hang_up(house: StandIn) -> None:
    with house.connect() as connection:
        connection.sendall(request("POST", PATH, CHAT, Connection="keep-alive") + request("POST", PATH, CHAT))
        for _ in range(2):
            asked = house.next_ask()
            house.do(lambda asked=asked: serve_whole(house, asked))
        assert read_to_end(connection).count(ANSWER) == 2


def test_a_large_body_travels_as_a_file_that_is_gone_afterwards(house: StandIn) -> None:
    large = {**CHAT, "padding": "x" * 5000}
    with opened(house, large) as connection:
        asked = house.next_ask()
        file = endpoints.spool(house.runtime) / asked.ask.spool
        assert asked.body == b""
        assert msgspec.json.decode(file.read_bytes()) == large
        assert file.stat().st_mode & 0o777 == 0o600
        house.do(lambda: serve_whole(house, asked))
        read_to_end(connection)
    wait_for(lambda: not file.exists())


# Accidents


def test_a_worker_that_dies_before_the_first_token_is_not_noticed(house: StandIn) -> None:
    house.add_worker("w2")
    with opened(house) as connection:
        first = house.next_ask()
        house.do(lambda: house.grant(first))
        house.kill_worker("w1", Failure(Code.WORKER_GONE, "killed"))
        again = house.next_ask()
        assert (again.ask.number, again.ask.attempt, again.ask.suspect) == (first.ask.number, 2, True)
        assert again.body == first.body
        house.do(lambda: house.grant(again, "w2"))
        house.do(lambda: house.publish(again, [*again.tokens(0, 2), again.done(2)], "w2"))
        body = parsed(read_to_end(connection))[2]
    assert body == CHUNK % 0 + CHUNK % 1 + b"data: [DONE]\n\n"
    house.kill_worker("w2", Failure(Code.UNLOADED, "unloaded"))


def test_a_second_death_is_told_with_its_status(house: StandIn) -> None:
    with opened(house) as connection:
        for seq in (1, 2):
            asked = house.next_ask()
            assert asked.ask.attempt == seq
            failure = Failure(Code.BACKEND_DIED, "the backend was killed by SIGKILL")
            house.do(lambda asked=asked: house.grant(asked))
            house.do(lambda asked=asked, failure=failure: house.publish(asked, [asked.failed(0, failure)]))
        error = error_of(parsed(read_to_end(connection)))
    assert (error["code"], error["model"]) == ("backend_died", "tiny")


def test_what_a_worker_sent_before_it_died_counts(house: StandIn) -> None:
    house.add_worker("w3")
    with opened(house) as connection:
        asked = house.next_ask()
        house.do(lambda: house.grant(asked, "w3"))
        house.do(lambda: house.publish(asked, asked.tokens(0, 1), "w3"))
        seen = read_until(connection, CHUNK % 0)
        endpoint = house.workers["w3"].endpoint

        def last_words() -> None:
            # The supervisor's news may overtake them: they travel on another socket.
            house.send(asked.gateway, staff.WorkerGone("w3", endpoint, Failure(Code.WORKER_GONE, "killed")))
            house.publish(asked, [*asked.tokens(1, 2), asked.done(2)], "w3")

        house.do(last_words)
        body = parsed(seen + read_to_end(connection))[2]
    assert body.endswith(CHUNK % 1 + b"data: [DONE]\n\n")


@pytest.mark.parametrize("how", ["event", "gone"])
def test_a_death_in_mid_stream_is_told_in_band_and_never_as_complete(house: StandIn, how: str) -> None:
    with opened(house, X_Request_ID="r.7") as connection:
        asked = house.next_ask()
        house.do(lambda: house.grant(asked))
        house.do(lambda: house.publish(asked, asked.tokens(0, 2)))
        seen = read_until(connection, CHUNK % 1)
        failure = Failure(Code.BACKEND_DIED, "the backend was killed by SIGKILL", detail="/secret/path")
        if how == "event":
            house.do(lambda: house.publish(asked, [asked.failed(2, failure)]))
        else:
            house.kill_worker("w1", failure)
        status, _, body = parsed(seen + read_to_end(connection))
    assert status == 200
    assert b"[DONE]" not in body
    assert b"secret" not in body
    *_, last, _ = body.split(b"\n\n")
    error = msgspec.json.decode(last.removeprefix(b"data: "))["error"]
    assert (error["code"], error["model"], error["request_id"], error["tokens_sent"]) == (
        "backend_died",
        "tiny",
        "r.7",
        2,
    )


def test_a_gap_ends_the_attempt_and_cancels_it(house: StandIn) -> None:
    with opened(house) as connection:
        asked = house.next_ask()
        house.do(lambda: house.grant(asked))
        house.do(lambda: house.publish(asked, asked.tokens(0, 1)))
        seen = read_until(connection, CHUNK % 0)
        house.do(lambda: house.publish(asked, asked.tokens(2, 3)))
        body = dechunked((seen + read_to_end(connection)).partition(b"\r\n\r\n")[2])
    assert b"events_lost" in body
    assert b"[DONE]" not in body
    cancel = house.cancelled.get(timeout=DEADLINE)
    assert (cancel.number, cancel.attempt) == (asked.ask.number, 1)


@pytest.mark.parametrize("body", [STREAM, CHAT], ids=["stream", "whole"])
@pytest.mark.parametrize("when", ["waiting", "running"])
def test_a_client_that_hangs_up_cancels_at_once(house: StandIn, body: dict[str, Any], when: str) -> None:
    with opened(house, body):
        asked = house.next_ask()
        if when == "running":
            house.do(lambda: house.grant(asked))
    began = time.monotonic()
    cancel = house.cancelled.get(timeout=DEADLINE)
    assert (cancel.gateway, cancel.number, cancel.attempt) == (asked.gateway, asked.ask.number, 1)
    assert time.monotonic() - began < 1


def test_a_hang_up_behind_a_pipelined_request_is_noticed_too(house: StandIn) -> None:
    with house.connect() as connection:
        connection.sendall(request("POST", PATH, CHAT, Connection="keep-alive") + request("GET", "/live", b""))
        asked = house.next_ask()
    assert house.cancelled.get(timeout=DEADLINE).number == asked.ask.number


def test_a_call_whose_client_hangs_up_is_forgotten(house: StandIn) -> None:
    with house.connect() as connection:
        connection.sendall(request("GET", "/v1/stats", b""))
        gateway, call = house.others.get(timeout=DEADLINE)
    assert house.others.get(timeout=DEADLINE) == (gateway, admin.Forget(call.number))


def test_a_call_is_answered_or_refused(house: StandIn) -> None:
    with house.connect() as connection:
        connection.sendall(request("GET", "/v1/models/nothing", b""))
        gateway, call = house.others.get(timeout=DEADLINE)
        failure = Failure(Code.MODEL_NOT_FOUND, "no such model", model="nothing")
        house.do(lambda: house.send(gateway, work.Refused(call.number, 0, failure)))
        response = parsed(read_to_end(connection))
    assert (response[0], error_of(response)["code"]) == (404, "model_not_found")
    assert house.others.empty()


def test_a_refusal_has_its_status_and_says_when_to_come_back(house: StandIn) -> None:
    def refuse(asked: Asked) -> None:
        failure = Failure(Code.OVERLOADED, "the queue is full", retry_after=2.2)
        house.send(asked.gateway, work.Refused(asked.ask.number, asked.ask.attempt, failure))

    house.on_ask = refuse
    response = house.post(PATH, STREAM)
    assert (response[0], response[1]["retry-after"]) == (503, "3")
    assert error_of(response)["code"] == "overloaded"


def test_a_client_that_does_not_read_costs_only_itself(tmp_path: Path) -> None:
    with standing(tmp_path / "r", inbox_bytes=200_000) as house, house.connect() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(request("POST", PATH, STREAM))
        asked = house.next_ask()
        house.do(lambda: house.grant(asked))
        seq = 0
        told: list[str] = []

        def goes_on_until_told() -> bool:
            nonlocal seq
            batch = [asked.event(seq + more, Kind.DELTA, b"data: " + b"x" * 10_000 + b"\n\n", 1) for more in range(20)]
            house.do(lambda batch=batch: house.publish(asked, batch))
            seq += 20
            with contextlib.suppress(queue.Empty):
                told.append(house.cancelled.get(timeout=0.02).reason)
            return bool(told)

        wait_for(goes_on_until_told)
        assert told == ["client_too_slow"]
        assert house.get("/live")[0] == 200
        assert not read_to_end(slow).endswith(b"0\r\n\r\n")


# Bad requests


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", 400),
        (b"GET /a\x00b HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: b\x00c\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nA: " + b"a" * 9000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: odd\r\n\r\n", 501),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}nonsense", 400),
    ],
)
def test_what_the_parser_refuses_is_answered_in_json(house: StandIn, raw: bytes, status: int) -> None:
    response = house.raw(raw)
    assert response[0] == status
    error_of(response)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/nowhere", b"", 404, "not_found"),
        ("GET", PATH, b"", 405, "method_not_allowed"),
        ("POST", "/live", b"", 405, "method_not_allowed"),
        ("POST", PATH, b"{", 400, "invalid_json"),
        ("POST", PATH, b"[]", 400, "invalid_request"),
        ("POST", PATH, b"", 400, "invalid_json"),
        ("POST", PATH, {**CHAT, "stop": list("abcde")}, 400, "invalid_request"),
        ("POST", PATH, {**CHAT, "max_tokens": 1, "max_completion_tokens": 1}, 400, "invalid_request"),
        ("POST", PATH, {"messages": []}, 400, "invalid_request"),
        ("POST", "/v1/completions", {"prompt": "x", "stream": True, "logprobs": True}, 400, "invalid_request"),
        ("POST", "/v1/completions", {"prompt": "x", "stream": True, "echo": True}, 400, "invalid_request"),
        ("POST", "/v1/embeddings", {"input": "x", "encoding_format": "hex"}, 400, "invalid_request"),
        ("POST", PATH, b"x" * 1_100_000, 413, "body_too_large"),
        ("BREW", "/live", b"", 405, "method_not_allowed"),
    ],
)
def test_bad_requests_are_clear_4xx(house: StandIn, method: str, path: str, body: Any, status: int, code: str) -> None:
    response = house.raw(request(method, path, body, X_Request_ID="bad.1"))
    assert response[0] == status
    error = error_of(response)
    assert (error["code"], error["request_id"]) == (code, "bad.1")
    if status == 405:
        assert response[1]["allow"]


def test_a_chunked_body_over_the_limit_is_413_before_its_end(house: StandIn) -> None:
    with house.connect() as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                connection.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        response = parsed(read_to_end(connection))
    assert response[0] == 413
    assert response[1]["connection"] == "close"
    error_of(response)


def test_multipart_is_refused_by_a_json_route(house: StandIn) -> None:
    response = house.raw(
        b"POST /v1/chat/completions HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=x\r\n"
        b"Content-Length: 2\r\n\r\n{}"
    )
    assert response[0] == 415
    error_of(response)


def test_head_is_get_without_the_body(house: StandIn) -> None:
    status, headers, body = house.raw(request("HEAD", "/live", b""))
    assert (status, body, headers["content-length"]) == (200, b"", "15")


def test_pages_may_ask_and_the_headers_they_want_are_echoed(house: StandIn) -> None:
    status, headers, _ = house.raw(
        request("OPTIONS", PATH, b"", Origin="http://elsewhere", Access_Control_Request_Headers="authorization, x-a")
    )
    assert status == 204
    assert headers["access-control-allow-origin"] == "*"
    assert headers["access-control-allow-headers"] == "authorization, x-a"


def test_foreign_pages_may_not_change_the_server(house: StandIn) -> None:
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "http://["},
        {"Host": "evil.example"},
        {"Host": "[::1"},
        {"Host": "a]b"},
    ):
        response = house.raw(
            b"POST /v1/load HTTP/1.1\r\n"
            + b"".join(f"{name}: {value}\r\n".encode() for name, value in headers.items())
            + (b"" if "Host" in headers else b"Host: localhost\r\n")
            + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}"
        )
        assert response[0] == 403
        error_of(response)


def test_every_line_of_the_log_carries_the_request_id(house: StandIn) -> None:
    house.post(PATH, b"{", X_Request_ID="logged.1")
    line = wait_for(lambda: next((line for line in house.lines if line.get("request_id") == "logged.1"), None))
    assert (line["event"], line["status"], line["process"], line["code"]) == ("request", 400, "gateway", "invalid_json")


# Keys


def test_with_a_key_only_the_probes_are_open(tmp_path: Path) -> None:
    with standing(tmp_path / "r", api_key="secret-/+=") as house:
        house.on_ask = lambda asked: serve_whole(house, asked)
        assert house.get("/live")[0] == house.get("/health")[0] == 200
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"x_api_key": "wrong"}, {"Authorization": "Basic x"}):
            response = house.post(PATH, CHAT, **headers)
            assert response[0] == 401
            error_of(response)
        for key, status in (("secret-/+=", 200), ("secret-ä", 401)):
            head = b"POST /v1/chat/completions HTTP/1.1\r\nConnection: close\r\n"
            body = msgspec.json.encode(CHAT)
            for name in ("Authorization: Bearer", "x-api-key:"):
                fields = f"{name} {key}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                assert house.raw(head + fields + body)[0] == status


# The end


def test_draining_refuses_the_new_and_lets_the_old_end(tmp_path: Path) -> None:
    with standing(tmp_path / "r") as house, house.connect() as kept, opened(house) as connection:
        kept.sendall(request("GET", "/live", b"", Connection="keep-alive"))
        read_until(kept, b'{"status":"ok"}')
        asked = house.next_ask()
        house.do(lambda: house.grant(asked))
        house.do(lambda: house.publish(asked, asked.tokens(0, 1)))
        seen = read_until(connection, CHUNK % 0)
        house.do(lambda: house.send(asked.gateway, staff.Draining(DEADLINE)))
        wait_for(lambda: house.get("/health")[0] == 503)
        kept.sendall(request("POST", PATH, CHAT, Connection="keep-alive"))
        response = parsed(read_to_end(kept))
        assert (response[0], response[1]["connection"], error_of(response)["code"]) == (503, "close", "draining")
        assert house.get("/live")[0] == 200
        house.do(lambda: house.publish(asked, [*asked.tokens(1, 2), asked.done(2)]))
        assert parsed(seen + read_to_end(connection))[2].endswith(b"data: [DONE]\n\n")
        assert house.gateway is not None
        house.gateway.send_signal(signal.SIGTERM)
        assert house.gateway.wait(DEADLINE) == 0


def test_the_supervisors_death_closes_the_door_and_lets_streams_end(tmp_path: Path) -> None:
    with standing(tmp_path / "r") as house, opened(house, CHAT) as waiting, opened(house) as running:
        asks = [house.next_ask(), house.next_ask()]
        asked = next(asked for asked in asks if asked.ask.stream)
        house.do(lambda: house.grant(asked))
        house.do(lambda: house.publish(asked, asked.tokens(0, 1)))
        seen = read_until(running, CHUNK % 0)
        house.listener.close()
        house.supervisor.kill()
        house.supervisor.wait(DEADLINE)
        response = parsed(read_to_end(waiting))
        assert (response[0], error_of(response)["code"]) == (503, "supervisor_lost")
        assert response[1]["retry-after"]
        wait_for(lambda: refused(house.port))
        house.do(lambda: house.publish(asked, [*asked.tokens(1, 2), asked.done(2)]))
        assert parsed(seen + read_to_end(running))[2].endswith(b"data: [DONE]\n\n")
        assert house.gateway is not None
        assert house.gateway.wait(DEADLINE) == 0


def test_after_the_grace_streams_are_told(tmp_path: Path) -> None:
    with standing(tmp_path / "r", grace=0.5) as house, opened(house) as running:
        asked = house.next_ask()
        house.do(lambda: house.grant(asked))
        house.do(lambda: house.publish(asked, asked.tokens(0, 1)))
        seen = read_until(running, CHUNK % 0)
        house.supervisor.kill()
        house.supervisor.wait(DEADLINE)
        body = parsed(seen + read_to_end(running))[2]
        assert b"supervisor_lost" in body
        assert b"[DONE]" not in body
        assert house.gateway is not None
        assert house.gateway.wait(DEADLINE) == 0


def refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=DEADLINE).close()
    except ConnectionRefusedError:
        return True
    return False


def workers_of(house: StandIn) -> list[psutil.Process]:
    assert house.gateway is not None
    return psutil.Process(house.gateway.pid).children()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_process_that_dies_or_stops_is_replaced(tmp_path: Path, how: signal.Signals) -> None:
    with standing(tmp_path / "r") as house:
        (worker,) = workers_of(house)
        os.kill(worker.pid, how)
        deadline = time.monotonic() + 12
        while len(house.gateways) < 2:
            assert time.monotonic() < deadline
            threading.Event().wait(0.05)
        wait_for(lambda: house.get("/live")[0] == 200)


def test_the_masters_death_breaks_streams_and_never_completes_them(tmp_path: Path) -> None:
    with standing(tmp_path / "r") as house, opened(house) as connection:
        asked = house.next_ask()
        house.do(lambda: house.grant(asked))
        house.do(lambda: house.publish(asked, asked.tokens(0, 1)))
        read_until(connection, CHUNK % 0)
        (worker,) = workers_of(house)
        assert house.gateway is not None
        house.gateway.kill()
        rest = read_to_end(connection)
        assert b"[DONE]" not in rest
        assert not rest.endswith(b"0\r\n\r\n")
        worker.wait(DEADLINE)
