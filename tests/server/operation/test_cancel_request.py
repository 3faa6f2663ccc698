"""An administrator cancels requests of a real server: their clients are told, the engine stops, and the usage counts it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import StartServer
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

LOOP = "extra.tiny-loop"
LONG = 60_000
"""Tokens that take longer than any test."""


@pytest.fixture(scope="module")
def module_server(start_module_server: StartServer) -> LemonbusServer:
    """A server with one slot. The context is large enough for an answer that ends only when it is stopped."""
    server = start_module_server("tiny-loop", slots=1, ctx_size=65_536, load=[LOOP])
    server.wait_loaded(LOOP)
    return server


def id_of(server: LemonbusServer, label: str) -> str:
    """Wait until a request is in flight, and return its id."""

    def found() -> str | None:
        requests: dict[str, Any] = server.client.get("/internal/overview", **server.admin_headers).json()["requests"]
        return next((number for number, each in requests.items() if each["id"] == label), None)

    return wait_for(found, f"{label} is in flight")


def cancel(server: LemonbusServer, number: str) -> Any:
    return server.client.start("DELETE", f"/internal/requests/{number}", headers=server.admin_headers).finish()


@pytest.mark.parametrize("stream", [True, False])
def test_running_and_waiting_requests_end_at_once(module_server: LemonbusServer, stream: bool) -> None:
    server, client = module_server, module_server.client
    running = client.start_chat(LOOP, {"X-Request-ID": "runs"}, stream=stream, max_tokens=LONG)
    running_id = id_of(server, "runs")
    wait_for(lambda: server.busy_slots(LOOP) == 1, "it is in the engine")
    if stream:
        running.until(lambda it: len(it.events) > 3)
    waiting = client.start_chat(LOOP, {"X-Request-ID": "waits"}, stream=stream, max_tokens=LONG)
    waiting_id = id_of(server, "waits")

    cancelled = cancel(server, waiting_id)
    assert (cancelled.status, cancelled.json()) == (200, {"status": "success", "id": waiting_id})
    refused = waiting.finish()
    assert (refused.status, refused.error["code"]) == (499, "cancelled_by_operator")
    assert "operator" in refused.error["message"]

    assert cancel(server, running_id).status == 200
    ended = running.finish()
    assert ended.complete
    assert (ended.status, ended.error["code"]) == (200 if stream else 499, "cancelled_by_operator")
    assert not ended.done
    wait_for(lambda: server.busy_slots(LOOP) == 0, "the engine has stopped")
    wait_for(lambda: server.state()["granted"] == 0, "the slot is free")
    assert cancel(server, running_id).error["code"] == "not_found"
    assert client.chat(LOOP, max_tokens=2).status == 200


def test_the_usage_counts_it_as_cancelled(start_server: StartServer) -> None:
    server = start_server("tiny-loop", slots=1, ctx_size=65_536)

    def cancelled() -> int:
        total = server.client.get("/internal/usage").json()["total"]
        assert total["failures"].get("cancelled_by_operator", 0) == total["cancelled"]
        return int(total["cancelled"])

    running = server.client.start_chat(LOOP, {"X-Request-ID": "counts"}, stream=True, max_tokens=LONG)
    running.until(lambda it: len(it.events) > 3)
    assert cancel(server, id_of(server, "counts")).status == 200
    running.finish()
    wait_for(lambda: cancelled() == 1, "it is counted")


@pytest.mark.parametrize("number", ["nonsense", "g1", ":1", "g1:", "g1:1:1", "G1:1", "g1:" + "9" * 30])
def test_an_id_of_another_form_is_refused(module_server: LemonbusServer, number: str) -> None:
    refused = cancel(module_server, number)
    assert (refused.status, refused.error["param"]) == (400, "id")


def test_an_unknown_request_is_404(module_server: LemonbusServer) -> None:
    refused = cancel(module_server, "g12345678:1")
    assert (refused.status, refused.error["code"]) == (404, "not_found")


def test_only_an_administrator_may_cancel(start_server: StartServer) -> None:
    server = start_server("tiny-loop", api_key="user", admin_api_key="root", slots=1, ctx_size=65_536)
    user = {"Authorization": "Bearer user"}
    running = server.client.start_chat(LOOP, {**user, "X-Request-ID": "r"}, stream=True, max_tokens=LONG)
    running.until(lambda it: len(it.events) > 3)
    number = id_of(server, "r")
    assert number in server.client.get("/internal/overview", **user).json()["requests"], "it sees its own request"
    path = f"/internal/requests/{number}"
    assert server.client.start("DELETE", path, headers=user).finish().status == 403
    assert server.client.start("DELETE", path).finish().status == 401
    assert server.client.start("DELETE", path, headers=server.admin_headers).finish().status == 200
    assert running.finish().error["code"] == "cancelled_by_operator"
