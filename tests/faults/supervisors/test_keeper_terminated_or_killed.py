"""After SIGTERM, running requests end and no process is left. After SIGKILL of the keeper, every client gets an answer and no process is left."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.fake_engines.llama_server import program
from tests.support import processes
from tests.support.clients.http_client import chat_body
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.waiting import wait_for

LOOP, CHAT = "extra.tiny-loop", "extra.tiny-chat"
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
FRAMINGS = (b"Content-Length: 100", b"Transfer-Encoding: chunked")


@pytest.fixture
def pausing(tmp_path: Path) -> dict[str, Any]:
    """Settings for an engine whose streams pause after three words until the engine is stopped and continued."""
    return {"llamacpp_backend": "system", "llama_server": program(tmp_path, "pauses_mid_stream")}


def test_sigterm_lets_running_requests_end(start_server: StartServer, pausing: dict[str, Any]) -> None:
    # One gateway: the kept connection is to the one that says it is no longer ready.
    server = start_server("tiny-loop", slots=1, load=[LOOP], gateway_workers=1, grace=120, **pausing)
    server.wait_loaded(LOOP)
    engine = server.engine_pid(LOOP)
    kept = server.client.connect()
    assert not server.client.start("GET", "/live", connection=kept).until(lambda it: it.complete).closed
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=9)
    stream.until(lambda it: len(it.events) > 2)

    with processes.stopped(engine):  # the stream does not end before all this has been checked
        waiting = server.client.start_chat(LOOP)
        wait_for(lambda: server.state()["queued"] == 1, "one waits")
        unfinished = [server.client.raw(HEAD + framing + b"\r\n\r\n5\r\n{") for framing in FRAMINGS]
        server.signal(signal.SIGTERM)
        # While a request runs, new clients get an answer: the listener stays.
        wait_for(lambda: server.client.get("/health").status == 503, "readiness is false")
        new = server.client.chat(LOOP)
        late = server.client.start("POST", "/v1/chat/completions", chat_body(LOOP), connection=kept).until(
            lambda it: it.complete, 5
        )
        for refused in (waiting.finish(), new, late):
            assert (refused.status, refused.error["code"]) == (503, "draining")
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.headers["connection"] == "close"
        assert late.read_to_close(), "the kept connection really closes"
        for slow in unfinished:
            slow.until(lambda it: it.complete, 5)
            assert (slow.status, slow.error["code"]) == (503, "draining"), "no body is waited for"
            assert slow.read_to_close()
        assert server.client.get("/live").status == 200
        health = server.health()
        assert (health["status"], health["lemonbus"]["granted"]) == ("draining", 1), "status answers until the end"
        assert server.client.get("/readyz").json()["status"] == "draining"
        assert server.alive

    stream.finish(100)
    assert stream.done
    assert stream.complete
    assert server.wait_exit() == 0
    server.assert_nothing_left()


def test_sigterm_lets_a_long_list_end(start_server: StartServer, pausing: dict[str, Any]) -> None:
    server = start_server("tiny-loop", slots=1, load=[LOOP], gateway_workers=1, grace=120, **pausing)
    server.wait_loaded(LOOP)
    engine = server.engine_pid(LOOP)
    # So large that each is a piece of its own.
    body = {"model": LOOP, "prompt": ["hi " * 4000] * 2, "max_tokens": 9, "stream": True}
    stream = server.client.start("POST", "/v1/completions", body)
    stream.until(lambda it: len(it.events) > 2)  # the first piece pauses
    server.signal(signal.SIGTERM)
    wait_for(lambda: server.client.get("/health").status == 503, "it ends")
    with processes.stopped(engine):
        pass
    stream.until(lambda it: sum(chunk["choices"][0]["index"] == 1 for chunk in it.chunks) > 2)  # the second one pauses
    with processes.stopped(engine):
        pass
    stream.finish(100)
    assert stream.done
    assert stream.complete
    assert server.wait_exit() == 0
    server.assert_nothing_left()


def test_the_grace_has_an_end(start_server: StartServer, pausing: dict[str, Any]) -> None:
    server = start_server("tiny-loop", load=[LOOP], grace=0.5, **pausing)
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=1000)
    stream.until(lambda it: len(it.events) > 2)
    server.signal(signal.SIGTERM)
    stream.finish()
    assert not stream.done
    assert stream.error["code"] == "draining"
    assert server.wait_exit() == 0
    reported = [(line["level"], line["reason"]) for line in server.lines if line["event"] == "worker gone"]
    assert set(reported) == {("info", "exit 0")}, "it left as it was told"


def test_questions_are_answered_until_the_last_worker_has_ended(start_server: StartServer) -> None:
    server = start_server("tiny-loop", grace=60)

    def spares() -> list[int]:
        return [each["pid"] for each in server.state()["processes"] if each["role"] == "worker"]

    (spare,) = wait_for(spares, "a spare worker has said Hello")
    with processes.stopped(spare):
        server.signal(signal.SIGTERM)
        wait_for(lambda: server.health()["status"] == "draining", "it ends")
        for _ in range(10):
            assert server.health()["status"] == "draining"
            assert server.client.chat(LOOP).error["code"] == "draining"
    assert server.wait_exit() == 0
    ends = [line["event"] for line in server.lines if line["event"] in ("worker gone", "gateway worker gone")]
    assert ends == ["worker gone", "gateway worker gone"]


def test_connections_are_refused_at_once_at_a_shutdown_without_gateways(start_server: StartServer) -> None:
    server = start_server("tiny-loop", grace=20)
    (spare,) = wait_for(server.workers, "a spare worker runs")
    # The server cannot end before this worker does.
    with processes.stopped(spare.pid):
        processes.kill(server.gateway_master())
        server.signal(signal.SIGTERM)
        wait_for(lambda: not server.listens(), "clients are refused at once")
        assert server.alive
    assert server.wait_exit() == 0
    assert not [line for line in server.lines if line["event"] == "not accepting connections for a moment"]


def test_sigterm_while_a_model_is_loaded(start_server: StartServer) -> None:
    server = start_server("tiny-loop", "tiny-chat")
    request = server.client.start_chat(LOOP, max_tokens=3)
    wait_for(lambda: server.state()["models"], "it is being loaded")
    server.signal(signal.SIGTERM)
    request.finish()
    assert request.status in (200, 503)
    assert server.wait_exit() == 0


def test_sigkill_of_the_keeper_answers_every_client(start_server: StartServer, pausing: dict[str, Any]) -> None:
    """A server that is started at once, with the same directory and port, serves while the old streams still run."""
    server = start_server("tiny-loop", slots=1, load=[LOOP], grace=120, gateway_workers=2, **pausing)
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=9)
    stream.until(lambda it: len(it.events) > 2)
    engine = server.engine(LOOP)
    with processes.stopped(engine.pid):  # the stream lasts until the next server serves
        waiting = [server.client.start_chat(LOOP, stream=stream_it) for stream_it in (True, False)]
        wait_for(lambda: server.state()["queued"] == 2, "two wait")
        former = server.process_tree()
        server.kill_keeper()
        for request in waiting:
            request.finish()
            assert request.status == 503, request
            assert request.error["code"] == "supervisor_lost"
            assert int(request.headers["retry-after"]) >= 1
        wait_for(lambda: not server.listens(), "the listener is closed")
        second = start_server("tiny-chat", runtime=server.runtime, port=server.port)
        assert second.client.chat(CHAT).text == CHAT_TEXT
    assert stream.finish(60).done, "what runs may go on up to the grace"
    wait_for(lambda: not any(processes.alive(each.pid) for each in former), "then all leave")


def test_the_grace_after_the_keepers_death_has_an_end(start_server: StartServer, pausing: dict[str, Any]) -> None:
    server = start_server("tiny-loop", load=[LOOP], grace=0.5, **pausing)
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=1000)
    stream.until(lambda it: len(it.events) > 2)
    server.kill_keeper()
    stream.finish()
    assert not stream.done
    assert stream.error["code"] == "supervisor_lost"
    wait_for(lambda: not server.process_tree(), "all have left")
