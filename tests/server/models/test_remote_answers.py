"""What becomes of each answer that a server elsewhere may give, and of the key that is for it alone."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.support.fakes.scripted_server import ScriptedServer, chunked, response
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

HI = [{"role": "user", "content": "Hi"}]
KEY = "key-of-the-far-side"
ERROR = {"error": {"message": "Out of luck", "type": "server_error", "code": None}}
CHAT = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "yes"}}]}


def event(content: str = "", finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": content} if content else {}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice], **more}).encode() + b"\n\n"


END = event(finish="stop") + b"data: [DONE]\n\n"
LONG = "x" * 6_000_000

WHOLE: dict[str, tuple[bytes, int, str, str]] = {
    # name: the answer; status, code and a part of the message that the client gets
    "refuses-key": (response({"error": {"message": f"bad key {KEY}"}}, "401 no"), 502, "backend_error", "does not accept the key"),
    "forbids": (response({"detail": KEY}, "403 no"), 502, "backend_error", "does not accept the key"),
    "limits": (response(ERROR, "429 no", Retry_After="7"), 429, "rate_limit_exceeded", "Out of luck"),
    "loads": (response({"error": {"message": "Loading model"}}, "503 no"), 503, "overloaded", "Loading model"),
    "loads-for-long": (response(ERROR, "503 no", Retry_After="33"), 503, "overloaded", "Out of luck"),
    "knows-no-model": (response({"error": {"message": "The model `x` does not exist"}}, "404 no"), 502, "backend_error", "correct served_name"),
    "lacks-route": (response({"detail": "Not Found"}, "404 no"), 501, "unsupported_operation", "/v1/chat/completions"),
    "compresses": (response(gzip.compress(json.dumps(CHAT).encode()), Content_Encoding="gzip"), 500, "backend_error", "compressed"),
    "no-json": (response(b"<html>Hello</html>", kind="text/html"), 500, "backend_error", "makes no sense"),
    "error-in-200": (response(ERROR), 500, "backend_error", "Out of luck"),
    "no-http": (b"\x00\xff no HTTP\r\n\r\n", 500, "backend_error", "not HTTP"),
    "cut-body": (response(CHAT)[:-5], 500, "backend_connection_lost", "broke"),
    "open-silent": (b"", 500, "backend_died", "does not answer"),
    "open-half": (response(CHAT)[:-5], 500, "backend_connection_lost", "broke"),
}  # fmt: skip
STREAMS: dict[str, tuple[bytes, str, str]] = {
    # name: the answer; the text that the client gets, and the error that ends it, if any
    "cut-stream": (chunked(event("a"), event("b"), end=b""), "ab", "backend_connection_lost"),
    "open-stalls": (chunked(event("a"), end=b""), "a", "backend_connection_lost"),
    "broken-json": (chunked(event("a"), b'data: {"choices":[{"in\n\n', END), "a", "backend_error"),
    "broken-chunk": (chunked(event("a"), end=b"zz\r\n"), "a", "backend_error"),
    "no-end": (chunked(event("a"), b"data: [DONE]\n\n"), "a", "backend_error"),
    "long": (chunked(event("a"), event(LONG), event("b"), END), f"a{LONG}b", ""),
    "no-usage": (chunked(event("a"), event("b"), END), "ab", ""),
    "trailers": (chunked(event("a"), END, end=b"0\r\nX-Digest: 1\r\n\r\n"), "a", ""),
    "comments": (chunked(b": waiting\n\n", event("a"), b": still\r\n\r\n", b"event: x\r\nid: 3\r\n" + event("b"), END), "ab", ""),
}  # fmt: skip


@pytest.fixture(scope="module")
def far() -> Iterator[ScriptedServer]:
    answers = {name: each[0] for name, each in {**WHOLE, **STREAMS}.items()}
    with ScriptedServer(answers) as scripted:
        yield scripted


@pytest.fixture(scope="module")
def other() -> Iterator[ScriptedServer]:
    """Where the far side redirects requests to."""
    with ScriptedServer({}) as scripted:
        yield scripted


@pytest.fixture(scope="module")
def server(start_module_server: StartServer, far: ScriptedServer, other: ScriptedServer) -> Iterator[LemonbusServer]:
    ok = {name: chunked(event("yes"), END) for name in ("six", "behind-prefix")}
    far.answers["redirects"] = response(b"", "307 no", Location=f"{other.url}/chat/completions")
    with ExitStack() as stack:
        six = stack.enter_context(ScriptedServer(ok, host="::1"))
        prefixed = stack.enter_context(ScriptedServer(ok, prefix="/team/a"))
        urls = dict.fromkeys((*WHOLE, *STREAMS, "redirects"), far.url) | {"six": six.url, "behind-prefix": prefixed.url}
        models = {
            name: {
                "url": url,
                "served_name": name,
                "api_key_env": "FAR_KEY",
                "timeout": 3 if name.startswith("open-") else 60,
            }
            for name, url in urls.items()
        }
        yield start_module_server(models=models, gateway_workers=1, environment={"FAR_KEY": KEY})


def chat(server: LemonbusServer, model: str) -> Any:
    return server.client.post("/v1/chat/completions", {"model": model, "messages": HI})


@pytest.mark.parametrize("model", WHOLE)
def test_whole_answers(server: LemonbusServer, model: str) -> None:
    _, status, code, message = WHOLE[model]
    answer = chat(server, model)
    assert (answer.status, answer.error["code"]) == (status, code), answer
    assert message in answer.error["message"]
    assert KEY not in str(answer.json())
    if status in (429, 503):
        assert int(answer.headers["retry-after"]) == {"limits": 7, "loads-for-long": 33, "loads": 2}[model]


@pytest.mark.parametrize("model", STREAMS)
def test_streams(server: LemonbusServer, model: str) -> None:
    _, text, code = STREAMS[model]
    stream = server.client.start_chat(model, stream=True).finish()
    assert stream.text == text
    assert stream.done is not bool(code)
    assert (stream.error or {}).get("code", "") == code


def test_a_stream_without_usage_is_counted_by_its_chunks(server: LemonbusServer) -> None:
    stream = server.client.start_chat("no-usage", stream=True, stream_options={"include_usage": True}).finish()
    assert (stream.done, stream.text) == (True, "ab")
    assert all(not chunk.get("usage") for chunk in stream.chunks), "none is made up"
    wait_for(lambda: server.client.get("/v1/stats").json()["output_tokens"] == 2, "its two chunks are counted")


@pytest.mark.parametrize("model", ["six", "behind-prefix"])
def test_addresses_of_every_kind(server: LemonbusServer, model: str) -> None:
    stream = server.client.start_chat(model, stream=True).finish()
    assert (stream.done, stream.text) == (True, "yes")


def test_a_redirection_is_not_followed_and_the_key_stays_here(
    server: LemonbusServer, far: ScriptedServer, other: ScriptedServer
) -> None:
    answer = chat(server, "redirects")
    assert (answer.status, answer.error["code"]) == (502, "backend_error")
    assert "redirects" in answer.error["message"]
    assert any(f"Bearer {KEY}" in head for head in far.heads)
    assert other.heads == []
