"""Request ids in headers, errors and log lines; every line is one JSON object; no answer reveals paths of this machine."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
import simple_websocket

from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT = "extra.tiny-chat"
LOOP = "extra.tiny-loop"


@pytest.fixture
def server(shared_server: LemonbusServer) -> LemonbusServer:
    """A server that has used the model last."""
    assert shared_server.client.chat(CHAT, max_tokens=1).status == 200
    return shared_server


def processes_of(server: LemonbusServer, label: str) -> set[str]:
    return {str(line["process"]) for line in server.lines if line.get("request_id") == label}


def lines_of(server: LemonbusServer, label: str) -> list[dict[str, Any]]:
    """Return the gateway's own line of a request."""
    return [line for line in server.lines if (line["event"], line.get("request_id")) == ("request", label)]


def events_of_process(server: LemonbusServer, process: str, after: int) -> str:
    return " ".join(str(line["event"]) for line in server.lines[after:] if line["process"] == process)


def test_a_request_id_is_in_headers_errors_and_log_lines(server: LemonbusServer) -> None:
    label = "where.is-it_1"
    answer = server.client.start_chat(LOOP, {"X-Request-ID": label}, stream=True).until(lambda it: it.headers)
    assert answer.headers["x-request-id"] == label
    # The engine writes its log in a thread of its own, and what comes after the end of a request has no id.
    wait_for(lambda: "engine" in processes_of(server, label), "the engine has a line with it")
    answer.hang_up()
    wait_for(lambda: processes_of(server, label) >= {"gateway", "worker"}, "the other processes have lines with it")


@pytest.mark.parametrize("label", ["", "a b", "x" * 129, "ä", "a/b", "<script>"])
def test_an_invalid_request_id_is_replaced(server: LemonbusServer, label: str) -> None:
    answer = server.client.start("GET", "/v1/models", headers={"X-Request-ID": label}).finish()
    assert answer.status == 200
    assert answer.headers["x-request-id"] not in ("", label)


def test_every_line_is_a_json_object(server: LemonbusServer) -> None:
    assert server.client.chat(CHAT).text == CHAT_TEXT
    wait_for(lambda: len(server.lines) > 20, "there are lines")
    assert not server.unread
    for line in list(server.lines):
        assert {"ts", "level", "process", "pid", "event"} <= set(line)
        assert line["level"] in ("debug", "info", "warning", "error", "critical")
    assert {str(line["process"]) for line in server.lines} >= {"supervisor", "gateway", "worker", "engine"}


SECRET = "the-word-nobody-may-log"
SCHEMA = {"type": "json_schema", "json_schema": {"schema": {"type": "string", "pattern": f"^({SECRET}"}}}
ODD_SCHEMA = {"type": "json_schema", "json_schema": {"schema": {"type": SECRET}}}


@pytest.mark.parametrize(
    ("fields", "status", "expected"),
    [
        ({"messages": [{"role": "user", "content": SECRET}]}, 200, ""),
        ({"grammar": f"{SECRET} (("}, 400, "failed to parse grammar"),
        ({"grammar": f'root ::= "{SECRET}" x'}, 400, "failed to parse grammar"),
        ({"tools": [{"name": SECRET}]}, 400, "missing required field `function`"),
        ({"response_format": SCHEMA}, 200, ""),
        ({"response_format": ODD_SCHEMA}, 400, SECRET),
        ({"reasoning_format": SECRET}, 400, SECRET),
        ({"tool_choice": SECRET}, 400, "`tool_choice` must be auto"),
        ({"samplers": [SECRET]}, 200, ""),
        ({"parallel_tool_calls": SECRET}, 200, ""),
    ],
)
def test_what_a_client_wrote_is_in_no_line_and_in_its_answer(
    server: LemonbusServer, fields: dict[str, Any], status: int, expected: str
) -> None:
    before = len(server.lines)
    label = uuid.uuid4().hex
    plain = {"model": CHAT, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
    answer = server.client.post("/v1/chat/completions", {**plain, **fields}, X_Request_ID=label)
    assert answer.status == status, answer
    assert expected in answer.body.decode()
    answered = len(server.lines)
    # The engine prints its lines about it before it has finished the next request.
    assert server.client.post("/v1/chat/completions", plain).status == 200
    wait_for(lambda: "release" in events_of_process(server, "engine", answered), "the engine is done with the next one")
    wait_for(lambda: lines_of(server, label), "the line of the request")
    mine = server.lines[before:]
    assert SECRET not in json.dumps(mine).lower()
    assert not [line for line in mine if line["level"] in ("warning", "error")], "it was the caller's doing"
    if status == 400:
        (reported,) = lines_of(server, label)
        assert reported["reason"]
        assert answer.error["message"].startswith(reported["reason"])


def test_no_path_of_the_machine_is_in_any_answer(server: LemonbusServer) -> None:
    # Command lines of engines and details of failures have paths. Only administrators get them, pages of other sites never.
    garbage = server.models / "garbage.gguf"
    garbage.write_bytes(b"no GGUF")
    failed = server.client.post("/v1/load", {"model_name": "extra.garbage"})
    garbage.unlink()
    assert failed.error["code"] == "model_unusable"
    assert server.home.name in server.client.get("/v1/health").body.decode()
    health = server.client.start("GET", "/v1/health", headers={"Origin": "https://elsewhere.example"}).finish()
    assert "extra.garbage" in health.body.decode()
    asked = [
        server.client.get("/v1/models?show_all=true"),
        server.client.get(f"/v1/models/{CHAT}"),
        health,
        server.client.get("/v1/stats"),
        server.client.get("/v1/slots"),
        server.client.chat(CHAT),
        server.client.chat(CHAT, stream=True),
        server.client.chat(CHAT, messages=[{"role": "user", "content": "y" * 20_000}]),
        server.client.chat("nobody"),
        server.client.post("/v1/load", {"model_name": CHAT}),
        server.client.post("/v1/load", {"model_name": CHAT, "llamacpp_args": "--lora /nowhere/x.gguf"}),
        server.client.post("/v1/pull", {"model_name": "SmolLM2-135M-Instruct-GGUF"}),
        server.client.post("/v1/slots/0?action=restore", {"filename": "nothing.bin"}),
    ]
    for answer in asked:
        assert server.home.name.encode() not in answer.body, answer
        assert b"Traceback" not in answer.body, answer


def test_the_log_stream(server: LemonbusServer) -> None:
    socket = simple_websocket.Client.connect(f"ws://127.0.0.1:{server.port}/logs/stream")
    try:
        socket.send(json.dumps({"type": "logs.subscribe", "after_seq": None}))
        first = json.loads(socket.receive(timeout=5) or "{}")
        assert first["type"] == "logs.snapshot"
        server.client.start_chat(CHAT, {"X-Request-ID": "live-1"}).finish()
        expected = ""
        while "live-1" not in expected:
            expected = socket.receive(timeout=5) or ""
            assert expected, "nothing came"
        assert json.loads(expected)["type"] == "logs.entry"
    finally:
        socket.close()
