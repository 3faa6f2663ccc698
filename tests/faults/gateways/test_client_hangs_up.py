"""A client hangs up, streaming or not, in prefill or in decoding: the slot becomes idle, and its grant ends."""

from __future__ import annotations

import pytest

from tests.support import processes
from tests.support.descriptors import no_descriptors
from tests.support.models.tiny_models import prompt_of
from tests.support.server import LemonbusServer
from tests.support.waiting import stays, wait_for

LOOP, SLOW = "extra.tiny-loop", "extra.tiny-slow"


@pytest.fixture(scope="module")
def server(faulty_server: LemonbusServer) -> LemonbusServer:
    for model in (LOOP, SLOW):
        assert faulty_server.client.post("/v1/load", {"model_name": model}).status == 200
    return faulty_server


def gone(server: LemonbusServer, model: str) -> None:
    wait_for(lambda: server.busy_slots(model) == 0, "the slot is idle")
    wait_for(lambda: server.state()["granted"] == 0, "the grant is free")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("endpoint", ["chat/completions", "completions"])
def test_in_decoding(server: LemonbusServer, stream: bool, endpoint: str) -> None:
    asked = {"messages": [{"role": "user", "content": "hi"}]} if endpoint.startswith("chat") else {"prompt": "hi"}
    body = {"model": LOOP, **asked, "max_tokens": 60_000, "stream": stream}
    request = server.client.start("POST", f"/v1/{endpoint}", body)
    wait_for(lambda: server.busy_slots(LOOP) == 1, "it is in the engine")
    if stream:
        request.until(lambda it: len(it.events) > 3)
    request.hang_up()
    gone(server, LOOP)


@pytest.mark.parametrize("more", [{}, {"n_probs": 10, "stop": ["never"]}], ids=str)
@pytest.mark.parametrize("stream", [True, False])
def test_a_hang_up_in_decoding_of_llamacpps_own_form(
    server: LemonbusServer, stream: bool, more: dict[str, object]
) -> None:
    body = {"model": LOOP, "prompt": "hi", "n_predict": 60_000, "stream": stream, **more}
    request = server.client.start("POST", "/completion", body)
    wait_for(lambda: server.busy_slots(LOOP) == 1, "it is in the engine", 10)
    request.hang_up()
    gone(server, LOOP)


@pytest.mark.parametrize("stream", [True, False])
def test_in_prefill(server: LemonbusServer, stream: bool) -> None:
    body = {"model": SLOW, "prompt": prompt_of(3000), "max_tokens": 4000, "stream": stream}
    request = server.client.start("POST", "/v1/completions", body)
    wait_for(lambda: server.busy_slots(SLOW) == 1, "it is in the engine")
    assert not request.events
    request.hang_up()
    gone(server, SLOW)


@pytest.mark.parametrize("stream", [True, False])
def test_all_choices_of_one_request(server: LemonbusServer, stream: bool) -> None:
    request = server.client.start_chat(LOOP, n=3, stream=stream, max_tokens=60_000)
    wait_for(lambda: server.busy_slots(LOOP) == 3, "every choice has a slot")
    wait_for(lambda: server.state()["granted"] == 3, "three are granted")
    request.hang_up()
    gone(server, LOOP)


@pytest.mark.parametrize("stream", [True, False])
def test_a_half_closed_connection_is_a_hang_up(server: LemonbusServer, stream: bool) -> None:
    """TCP does not distinguish the two. A client that still reads gets an error, and no answer that looks complete."""
    request = server.client.start_chat(LOOP, stream=stream, max_tokens=60_000)
    wait_for(lambda: server.busy_slots(LOOP) == 1, "it is in the engine")
    if stream:
        request.until(lambda it: it.events)
    request.end_sending()
    gone(server, LOOP)
    request.finish()
    assert not request.done
    if not stream:
        assert (request.status, request.error["code"]) == (499, "cancelled")
        assert "ended its side" in request.error["message"]


def test_while_the_worker_has_no_descriptors(server: LemonbusServer) -> None:
    """For a while, the worker cannot ask its engine whether it is idle; it asks again later."""
    request = server.client.start_chat(LOOP, stream=True, max_tokens=60_000)
    request.until(lambda it: len(it.events) > 3)
    with no_descriptors(server.worker_pid(LOOP)):
        request.hang_up()
        wait_for(lambda: server.busy_slots(LOOP) == 0, "the slot is idle")
    gone(server, LOOP)
    test_in_decoding(server, stream=True, endpoint="completions")


def test_an_unload_goes_on(server: LemonbusServer) -> None:
    stream = server.client.start_chat(LOOP, max_tokens=60_000)
    wait_for(lambda: server.busy_slots(LOOP) == 1, "it is in the engine")
    seen = len(server.lines)
    unload = server.client.start("POST", "/v1/unload", {"model_name": LOOP})
    wait_for(lambda: server.model_state(LOOP) == "draining", "the unload waits for the answer")
    unload.hang_up()
    wait_for(lambda: any(line.get("path") == "/v1/unload" for line in server.lines[seen:]), "the hang-up was noticed")
    stream.hang_up()
    wait_for(lambda: server.model_state(LOOP) == "", "it is unloaded")


@pytest.mark.parametrize(
    ("endpoint", "stream"), [("chat/completions", True), ("completions", False), ("tokenize", False)]
)
def test_while_the_engine_reads_a_long_text(server: LemonbusServer, endpoint: str, stream: bool) -> None:
    text = "a" * 200_000  # the model does not know these letters, so each is a token of its own
    asked = (
        {"messages": [{"role": "user", "content": text}]} if "chat" in endpoint else {"prompt": text, "content": text}
    )
    assert server.client.post("/v1/load", {"model_name": LOOP}).status == 200
    engine = server.engine_pid(LOOP)
    began = processes.processor_seconds(engine)
    request = server.client.start("POST", f"/v1/{endpoint}", {"model": LOOP, **asked, "stream": stream})
    wait_for(lambda: processes.processor_seconds(engine) > began + 0.1, "it reads the text")
    request.hang_up()
    metrics = "lemonbus_requests_active 0.0"
    wait_for(lambda: metrics in server.client.get("/metrics").body.decode(), "the grant is free", 30.0)
    ended = processes.processor_seconds(engine)
    stays(lambda: processes.processor_seconds(engine) - ended < 0.2, "the engine had stopped reading the text", 1.0)
