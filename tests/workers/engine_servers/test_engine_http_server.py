"""The HTTP of our engine servers, in front of an engine that only waits: keys, bodies, turns, and clients that have left."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from tests.support.clients.http_client import RawHttpClient
from tests.support.waiting import wait_for
from workers.engine_servers.http_server import (
    MAX_WAITING_REQUESTS,
    EngineHttpHandler,
    EngineHttpServer,
    not_found_error,
)

KEY = "s\u00e9same"
HEADER = {"Authorization": f"Bearer {KEY}"}


class WaitingEngineServer(EngineHttpServer):
    """An engine whose work ends when the test says so."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.done = threading.Event()
        super().__init__(("127.0.0.1", 0), Work, "the-model", KEY)

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class Work(EngineHttpHandler):
    """What it is asked to do."""

    server: WaitingEngineServer
    largest = 100

    def serve(self, path: str, body: bytes) -> None:
        if path == "/fail":
            raise RuntimeError("a secret of the engine's")
        if path != "/work":
            raise not_found_error()
        with self.server.engine_lock(self.client_disconnected):
            self.server.begun.append(body.decode())
            assert self.server.done.wait(30)
        self.send_json({"did": body.decode()})


@pytest.fixture
def engine() -> Iterator[WaitingEngineServer]:
    engine = WaitingEngineServer()
    thread = threading.Thread(target=engine.serve_forever, args=(0.01,), daemon=True)  # it ends faster than open's
    thread.start()
    yield engine
    engine.done.set()
    engine.shutdown()
    engine.server_close()


@pytest.fixture
def client(engine: WaitingEngineServer) -> Iterator[RawHttpClient]:
    client = RawHttpClient(engine.port, HEADER)
    yield client
    client.close()


def test_what_the_server_answers_without_the_engine(engine: WaitingEngineServer, client: RawHttpClient) -> None:
    assert RawHttpClient(engine.port).get("/health").json() == {"status": "ok"}
    engine.ready = False
    assert client.get("/health").status == 503
    assert [each["id"] for each in client.get("/v1/models?x=1").json()["data"]] == ["the-model"]
    head = client.start("HEAD", "/v1/models").finish()
    assert (head.status, head.body) == (200, b"")
    assert client.get("/nope").status == client.post("/nope", {}).status == 404


@pytest.mark.parametrize(
    "shown",
    [{}, {"Authorization": "Bearer sesame"}, {"Authorization": KEY}, {"X-Api-Key": "x"}, {"Authorization": "Bearer "}],
)
def test_strangers(engine: WaitingEngineServer, shown: dict[str, str]) -> None:
    stranger = RawHttpClient(engine.port, shown)
    for answer in (stranger.get("/v1/models"), stranger.post("/work", {"a": 1})):
        assert (answer.status, answer.error["type"]) == (401, "authentication_error")
    assert not engine.begun


def test_the_key_as_any_client_shows_it(engine: WaitingEngineServer) -> None:
    for name, text in (("Authorization", f"bearer  {KEY} "), ("X-Api-Key", KEY)):
        client_text = RawHttpClient(engine.port, {name: text})
        assert client_text.get("/v1/models").status == 200


@pytest.mark.parametrize(
    ("method", "fields", "status"),
    [
        ("POST", "", 411),
        ("POST", "Content-Length: -1\r\n", 411),
        ("POST", "Content-Length: \u00b2\r\n", 411),
        ("POST", "Content-Length: 101\r\n", 413),
        ("POST", f"Content-Length: {'9' * 5000}\r\n", 413),
        ("POST", f"Content-Length: {'0' * 12}999999\r\n", 413),
        ("PUT", "", 405),
    ],
)
def test_bodies_and_methods_that_are_not_taken(client: RawHttpClient, method: str, fields: str, status: int) -> None:
    head = f"{method} /work HTTP/1.1\r\nAuthorization: {HEADER['Authorization']}\r\n{fields}\r\n"
    answer = client.raw(head.encode()).finish()
    assert (answer.status, answer.error["code"]) == (status, status)


def test_an_internal_error_is_reported_without_details(client: RawHttpClient) -> None:
    answer = client.post("/fail", {})
    assert (answer.status, answer.error["type"]) == (500, "server_error")
    assert b"secret" not in answer.body


def test_one_request_at_a_time_and_none_whose_client_has_gone(
    engine: WaitingEngineServer, client: RawHttpClient
) -> None:
    first = client.start("POST", "/work", b"first")
    wait_for(lambda: engine.begun == ["first"], "it works on the first")
    second = client.start("POST", "/work", b"second")
    wait_for(lambda: waits(engine, 1), "the second waits")
    second.hang_up()
    wait_for(lambda: not waits(engine, 1), "the second was given up")
    third = client.start("POST", "/work", b"third")
    engine.done.set()
    assert first.finish().json() == {"did": "first"}
    assert third.finish().json() == {"did": "third"}
    assert engine.begun == ["first", "third"]
    assert not engine.working


def test_requests_beyond_the_queue_are_told_to_try_again(engine: WaitingEngineServer, client: RawHttpClient) -> None:
    waiting = [client.start("POST", "/work", json.dumps(place).encode()) for place in range(MAX_WAITING_REQUESTS)]
    wait_for(lambda: waits(engine, MAX_WAITING_REQUESTS - 1), "all places are taken")
    late = client.post("/work", b"late")
    assert (late.status, late.error["type"]) == (503, "unavailable_error")
    engine.done.set()
    assert {each.finish().status for each in waiting} == {200}


def waits(engine: WaitingEngineServer, count: int) -> bool:
    """Return whether at least this many requests wait for their turn while one runs."""
    return bool(engine._waiting_slots._value <= MAX_WAITING_REQUESTS - 1 - count)  # type: ignore[attr-defined]
