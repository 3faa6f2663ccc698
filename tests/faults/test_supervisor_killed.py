"""SIGKILL of the supervisor alone: streams do not notice, what waits is served, nothing is loaded again, nothing is left."""

from __future__ import annotations

import signal

from tests.conftest import StartServer
from tests.support import processes
from tests.support.http_exchange import HttpExchange
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

LOOP, CHAT, TALE = "extra.tiny-loop", "extra.tiny-chat", "extra.tiny-tale"


def streams(server: LemonbusServer, count: int, tokens: int = 400) -> list[HttpExchange]:
    """Streams that have begun."""
    started = [server.client.start_chat(LOOP, stream=True, max_tokens=tokens) for _ in range(count)]
    for stream in started:
        stream.until(lambda it: len(it.events) > 2)
    return started


def recovered(server: LemonbusServer) -> dict[str, object]:
    """What the last supervisor that took over says that it found, waited for."""
    return wait_for(
        lambda: next((line for line in reversed(server.lines) if line["event"] == "recovered"), None),
        "the next supervisor has taken over",
    )


def test_streams_and_waiting_requests_do_not_notice(start_server: StartServer) -> None:
    server = start_server("tiny-loop", slots=4, load=[LOOP], gateway_workers=2)
    server.wait_loaded(LOOP)
    engine = server.engine_pid(LOOP)
    with processes.stopped(engine):
        running = [server.client.start_chat(LOOP, stream=True, max_tokens=400) for _ in range(4)]
        wait_for(lambda: server.state()["granted"] == 4, "they run")
        waiting = [server.client.start_chat(LOOP, max_tokens=20) for _ in range(8)]
        wait_for(lambda: server.state()["queued"] == 8, "the others wait")
        server.kill_supervisor()
        line = recovered(server)
        wait_for(lambda: server.state()["queued"] == 8, "they wait again")
        assert server.state()["granted"] == 4
    for exchange in (*running, *waiting):
        exchange.finish(60)
        assert exchange.status == 200, exchange
        assert exchange.complete
    assert all(stream.done for stream in running)
    assert server.engine_pid(LOOP) == engine, "it was not loaded again"
    server.assert_idle()
    assert (line["attempts"], line["killed"]) == (4, [])


def test_a_load_goes_on(start_server: StartServer) -> None:
    server = start_server("tiny-loop", "tiny-chat", max_loaded_models=2, load=[LOOP])
    server.wait_loaded(LOOP)
    request = server.client.start_chat(CHAT, max_tokens=3)
    engine = server.engine_pid(CHAT)
    with processes.stopped(engine):
        server.kill_supervisor()
        recovered(server)
    request.finish(60)
    assert request.status == 200
    assert server.engine_pid(CHAT) == engine
    server.assert_idle()


def test_an_eviction_goes_on(start_server: StartServer) -> None:
    server = start_server("tiny-loop", "tiny-chat", max_loaded_models=1, slots=2, load=[LOOP])
    server.wait_loaded(LOOP)
    (stream,) = streams(server, 1)
    other = server.client.start_chat(CHAT, max_tokens=3)
    wait_for(lambda: server.model_state(LOOP) == "draining", "it is to be evicted when its stream has ended")
    server.kill_supervisor()
    for exchange in (stream, other):
        exchange.finish(60)
        assert exchange.status == 200, exchange
    assert stream.done
    server.assert_idle()


def test_again_and_again(start_server: StartServer) -> None:
    server = start_server("tiny-loop", slots=4, load=[LOOP], gateway_workers=2)
    server.wait_loaded(LOOP)
    engine = server.engine_pid(LOOP)
    exchanges = streams(server, 4, 1500)
    for _ in range(5):
        exchanges += [server.client.start_chat(LOOP, stream=True, max_tokens=30) for _ in range(4)]
        before = len([line for line in server.lines if line["event"] == "recovered"])
        server.kill_supervisor()
        wait_for(
            lambda before=before: len([1 for line in server.lines if line["event"] == "recovered"]) > before,
            "the next one has taken over",
        )
    for exchange in exchanges:
        exchange.finish(100)
        assert exchange.status == 200, exchange
        assert exchange.done
    assert server.engine_pid(LOOP) == engine
    server.assert_idle()
    server.signal(signal.SIGTERM)
    assert server.wait_exit() == 0
    server.assert_nothing_left()


def test_sigterm_right_after_the_death_ends_all(start_server: StartServer) -> None:
    server = start_server("tiny-loop", slots=2, load=[LOOP], grace=60)
    server.wait_loaded(LOOP)
    (stream,) = streams(server, 1)
    server.kill_supervisor()
    server.signal(signal.SIGTERM)
    stream.finish(60)
    assert stream.done
    assert server.wait_exit() == 0
    server.assert_nothing_left()


def test_models_of_the_start_are_loaded_by_the_next_one(start_server: StartServer) -> None:
    server = start_server("tiny-loop", "tiny-chat", max_loaded_models=2, load=[LOOP, CHAT], wait=False)
    wait_for(lambda: any(line["event"] == "starting" for line in server.lines), "the first one has begun")
    server.kill_supervisor()
    server.wait_ready()
    server.wait_loaded(LOOP, CHAT)
    server.client.post("/v1/unload", {"model_name": CHAT})
    wait_for(lambda: not server.engine_now(CHAT), "it is unloaded")
    before = sum(line["event"] == "recovered" for line in server.lines)
    server.kill_supervisor()
    wait_for(lambda: sum(line["event"] == "recovered" for line in server.lines) > before, "the next one serves")
    server.assert_idle()
    assert server.model_state(LOOP) == "ready"
    assert not server.engine_now(CHAT), "it was loaded at the start, not at each take-over"
