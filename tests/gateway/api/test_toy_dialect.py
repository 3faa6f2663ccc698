"""A new dialect is one object and an entry in the list of dialects; no other file changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.app import DIALECTS, create_app
from gateway.http.connections import wsgi_environ
from gateway.http.connections.connection import ClientConnection
from gateway.requests.admission_states import AdmissionState
from protocol.failures import Code, Failure
from protocol.messages import work
from protocol.messages.calls import Progress
from protocol.messages.model_files import Pulled, PullModel
from tests.gateway.api.toy_dialect import ToyDialect
from tests.gateway.app_client import AppClient, SeveralMessages, StreamedAnswer
from tests.gateway.never_pausing_socket import NeverPausingSocket
from tests.gateway.raw_http import parsed

SAY = "/toy/v7/say"
CHUNKS = [
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]},
    {"choices": [{"index": 0, "delta": {"content": "Once"}}]},
    {"choices": [{"index": 0, "delta": {"content": " upon"}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
]
DIED = Failure(Code.BACKEND_ERROR, "the engine died")


@pytest.fixture
def ask(tmp_path: Path) -> AppClient:
    return AppClient(tmp_path, [*DIALECTS, ToyDialect()])


def lines(result: Any) -> list[Any]:
    return [json.loads(line) for line in result.text.splitlines()]


def test_a_whole_answer(ask: AppClient) -> None:
    ask.answers["chat/completions"] = {"choices": [{"message": {"content": "Once"}}]}
    result = ask("POST", SAY, {"model_name": "m", "words": "hi"})
    assert (result.status_code, result.headers["Content-Type"]) == (200, "application/x-toy")
    assert lines(result) == [{"say": "Once", "by": "m"}]
    (request,) = ask.asked(work.SubmitRequest)
    assert (request.model, request.stream) == ("m", False)
    assert json.loads(ask.bus.bodies[0]) == {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_a_stream_is_translated_from_chunks(ask: AppClient) -> None:
    ask.answers["chat/completions"] = StreamedAnswer(CHUNKS)
    result = ask("POST", SAY, {"model_name": "m", "words": "hi", "live": True})
    assert (result.status_code, result.headers["Content-Type"]) == (200, "application/x-ndjson")
    assert lines(result) == [{"say": "Once"}, {"say": " upon"}, {"over": "stop", "words": 2}]
    (request,) = ask.asked(work.SubmitRequest)
    assert request.stream


@pytest.mark.parametrize(
    ("chunks", "failure", "code"),
    [
        (CHUNKS[:2], DIED, Code.BACKEND_ERROR),
        ([*CHUNKS[:2], b"data: nonsense\n\n"], None, Code.BACKEND_ERROR),
        ([*CHUNKS[:2], {"choices": [], "usage": 5}], None, Code.BACKEND_ERROR),
    ],
)
def test_a_broken_stream_ends_with_the_dialects_error(
    ask: AppClient, chunks: list[Any], failure: Failure | None, code: Code
) -> None:
    ask.answers["chat/completions"] = StreamedAnswer(chunks, failure)
    result = ask("POST", SAY, {"model_name": "m", "words": "hi", "live": True})
    *_, last = lines(result)
    assert (last["alas"], last["id"]) == (code, result.headers["X-Request-ID"])
    assert not any("over" in line for line in lines(result))


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", SAY, b"{", 400, Code.INVALID_JSON),
        ("POST", SAY, {"model_name": "m"}, 400, Code.INVALID_REQUEST),
        ("POST", SAY, b"x" * 2000, 413, Code.TOO_LARGE),
        ("GET", SAY, None, 405, Code.METHOD_NOT_ALLOWED),
        ("GET", "/toy", None, 404, Code.NOT_FOUND),
        ("GET", "/toy/unknown", None, 404, Code.NOT_FOUND),
        ("POST", SAY, {"model_name": "full", "words": "hi"}, 529, Code.OVERLOADED),
    ],
)
def test_every_error_below_its_prefix_has_its_form(
    tmp_path: Path, method: str, path: str, body: Any, status: int, code: Code
) -> None:
    ask = AppClient(tmp_path, [*DIALECTS, ToyDialect()], body_limit=1000)
    ask.answers["chat/completions"] = Failure(Code.OVERLOADED, "too many")
    result = ask(method, path, body)
    (error,) = lines(result)
    assert (result.status_code, error["alas"], error["id"]) == (status, code, result.headers["X-Request-ID"])


@pytest.mark.parametrize(
    ("end", "last"),
    [
        (Pulled("m", 1), {"fetched": "m"}),
        (Failure(Code.DOWNLOAD_FAILED, "no hub"), {"alas": "download_failed"}),
    ],
)
def test_progress_has_the_dialects_form(ask: AppClient, end: Any, last: dict[str, str]) -> None:
    ask.reports[PullModel] = SeveralMessages([Progress(0, "m", "f", 1, 1, 50, 100), end])
    result = ask("POST", "/toy/v7/fetch", {"model_name": "m"})
    assert result.headers["Content-Type"] == "application/x-ndjson"
    first, ended = lines(result)
    assert first == {"percent": 50}
    assert last.items() <= ended.items()


def refusing_apps(folder: Path) -> Iterator[tuple[AppClient, Code]]:
    """Applications that refuse every request before routing."""
    dialects = [*DIALECTS, ToyDialect()]
    yield AppClient(folder, dialects, api_key="k"), Code.UNAUTHORIZED
    stopping = AppClient(folder, dialects)
    stopping.session.admission.state = AdmissionState.DRAINING
    yield stopping, Code.DRAINING


def test_what_is_refused_before_routing_has_its_form_too(tmp_path: Path) -> None:
    for ask, code in refusing_apps(tmp_path):
        for path in (SAY, "/toy/unknown"):
            assert lines(ask("POST", path, {}))[0]["alas"] == code
        assert ask("POST", "/v1/chat/completions", {}).json["error"]["code"] == code
        assert ask("POST", "/toyland", {}).json["error"]["code"] == code


class ServingToys:
    """A process that serves the application, as a connection knows it."""

    keeps_connections = True
    keep_alive_s = 5.0

    def __init__(self, ask: AppClient) -> None:
        self.wsgi = create_app(ask.session, [*DIALECTS, ToyDialect()])
        self.error_formats = self.wsgi.error_formats
        self.error_headers = self.wsgi.error_headers
        self.request_counts = ask.session.request_counts
        self.base_environ = wsgi_environ.process_environ(("127.0.0.1", 1), 1)
        self.idle: dict[Any, None] = {}


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /toy/v7/say HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"POST /toy/v7/say?a=%b HTTP/1.1\r\n" % (b"x" * 70_000), 414),
        (b"POST /toy/v7/say HTTP/9.9\r\n\r\n", 400),
        (b"GET /toy HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\n\r\n", 417),
    ],
)
def test_a_head_that_is_refused_has_its_form_too(ask: AppClient, head: bytes, status: int) -> None:
    client = NeverPausingSocket(head)
    process: Any = ServingToys(ask)
    client_socket: Any = client
    ClientConnection(process, client_socket, ("127.0.0.1", 9)).serve()
    code, headers, body = parsed(b"".join(client.answers))
    error = json.loads(body)
    assert (code, error["id"]) == (status, headers["x-request-id"])
    assert error["alas"]


def test_two_dialects_cannot_have_one_route(ask: AppClient) -> None:
    with pytest.raises(ValueError, match="two dialects have the route /toy/v7/say"):
        create_app(ask.session, [ToyDialect(), ToyDialect()])
