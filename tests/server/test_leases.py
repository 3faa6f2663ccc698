"""Requests that follow each other closely go straight to the worker, and everything else stays as it was."""

from __future__ import annotations

import pytest

from tests.conftest import StartServer
from tests.support.http_client import run_concurrently
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.processes import kill
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT, LOOP, OTHER = "extra.tiny-chat", "extra.tiny-loop", "extra.tiny-tale"


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> LemonbusServer:
    """One with both models; every test leaves them loaded, or loads what it needs."""
    return start_module_server("tiny-chat", "tiny-loop", slots=8, gateway_workers=1, load=[CHAT, LOOP])


def asked(server: LemonbusServer) -> int:
    """How many requests the supervisor granted."""
    return int(server.state()["counters"].get("grants", 0))


def wait_for_lease(server: LemonbusServer, model: str) -> None:
    """Ask until a lease is issued."""

    def straight() -> bool:
        before = asked(server)
        assert server.client.chat(model, max_tokens=1).status == 200
        return asked(server) == before

    wait_for(straight, "a request went straight to the worker")


def test_most_requests_are_sent_under_a_lease(server: LemonbusServer) -> None:
    server.wait_loaded(CHAT)
    wait_for_lease(server, CHAT)
    before = asked(server)
    for _ in range(20):
        answer = server.client.chat(CHAT)
        assert (answer.status, answer.text) == (200, CHAT_TEXT)
        stats = server.client.get("/v1/stats").json()
        assert stats["output_tokens"] == answer.json()["usage"]["completion_tokens"]
    assert asked(server) - before < 10
    answers = run_concurrently(8, lambda _: [server.client.chat(CHAT, stream=True).text for _ in range(5)])
    assert answers == [[CHAT_TEXT] * 5] * 8
    server.assert_idle()


def test_one_client_beside_a_lease_of_all_but_one_slot_revokes_nothing(server: LemonbusServer) -> None:
    server.wait_loaded(LOOP)
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=100_000)
    stream.until(lambda it: it.events)
    answers = run_concurrently(7, lambda _: [server.client.chat(LOOP, max_tokens=20).status for _ in range(5)])
    assert answers == [[200] * 5] * 7
    before = server.state()["counters"].get("leases_revoked", 0)
    for _ in range(20):
        body = {"model": LOOP, "prompt": "Once", "max_tokens": 1}
        assert server.client.post("/v1/completions", body).status == 200
        # The worker tells the supervisor of its end while the client hears of it: the next may come first there.
        wait_for(lambda: server.state()["granted"] == 1, "only the stream runs")
    assert server.state()["counters"].get("leases_revoked", 0) == before
    stream.hang_up()
    server.assert_idle()


def test_a_stream_under_a_lease_is_known(server: LemonbusServer) -> None:
    server.wait_loaded(LOOP)
    wait_for_lease(server, LOOP)
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=100_000)
    stream.until(lambda it: it.events)
    wait_for(lambda: server.state()["granted"] == 1, "health tells of it")
    stream.hang_up()
    wait_for(lambda: server.busy_slots(LOOP) == 0, "its slot is idle")
    server.assert_idle()


def test_an_engine_that_dies_under_a_lease(server: LemonbusServer) -> None:
    server.wait_loaded(LOOP)
    wait_for_lease(server, LOOP)
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=100_000)
    stream.until(lambda it: it.events)
    kill(server.engine_pid(LOOP))
    stream.finish()
    assert stream.error["code"] == "backend_died"
    assert not stream.done
    assert server.client.chat(LOOP, max_tokens=3).status == 200


def test_a_leased_model_can_be_evicted(start_server: StartServer) -> None:
    server = start_server("tiny-loop", "tiny-tale", max_loaded_models=1, slots=8, load=[LOOP])
    server.wait_loaded(LOOP)
    wait_for_lease(server, LOOP)
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=1500)
    stream.until(lambda it: it.events)
    other = server.client.start_chat(OTHER)
    assert stream.finish().done
    assert other.finish().status == 200
    assert server.client.chat(LOOP, max_tokens=3).status == 200
