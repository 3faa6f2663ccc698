"""The Responses API when an engine or a gateway is killed: an incomplete response never claims to be complete."""

from __future__ import annotations

from typing import Any

from tests.faults.conftest import CALM, LOOP
from tests.support import processes
from tests.support.clients.http_exchange import HttpExchange
from tests.support.clients.openai_client import openai_client
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

RESPONSES = "/v1/responses"


def body(**fields: Any) -> dict[str, Any]:
    return {"model": LOOP, "input": "hi", "max_output_tokens": 60_000} | fields


def deltas(exchange: HttpExchange) -> list[str]:
    return [event.json()["delta"] for event in exchange.events if event.name == "response.output_text.delta"]


def response_of(server: LemonbusServer, response_id: str) -> Any:
    return server.client.get(f"{RESPONSES}/{response_id}").json()


def test_a_stream_of_a_killed_engine_fails(loop_server: LemonbusServer) -> None:
    stream = loop_server.client.start("POST", RESPONSES, body(stream=True), {"X-Request-ID": "told-1"})
    stream.until(lambda it: len(deltas(it)) > 5)
    processes.kill(loop_server.engine_pid(LOOP))
    stream.finish()

    names = [event.name for event in stream.events]
    assert names[-1] == "response.failed"
    assert not {"response.completed", "response.incomplete"} & set(names)
    failed = stream.events[-1].json()["response"]
    assert failed["status"] == "failed"
    assert (failed["error"]["code"], failed["error"]["model"]) == ("backend_died", LOOP)
    assert failed["error"]["request_id"] == "told-1"
    assert failed["error"]["tokens_sent"] == len(deltas(stream))
    assert failed["output"][0]["content"][0]["text"] == "".join(deltas(stream))
    assert [event.json()["sequence_number"] for event in stream.messages] == list(range(len(stream.messages)))
    assert loop_server.client.get(f"{RESPONSES}/{failed['id']}").status == 404, "what failed is not stored"


def test_the_client_library_sees_no_end(calm_server: LemonbusServer) -> None:
    with openai_client(calm_server) as client, client.responses.create(**body(model=CALM), stream=True) as stream:
        types = []
        for event in stream:
            if event.type == "response.output_text.delta" and event.type not in types:
                processes.kill(calm_server.engine_pid(CALM))
            types.append(event.type)
    assert types[-1] == "response.failed"
    assert "response.completed" not in types


def test_a_response_in_the_background_survives_its_engine(loop_server: LemonbusServer) -> None:
    engine = loop_server.engine_pid(LOOP)
    with processes.stopped(engine):  # it does not end before its engine does
        begun = loop_server.client.post(RESPONSES, body(background=True, max_output_tokens=1000)).json()
        wait_for(lambda: loop_server.state()["granted"] == 1, "its engine has got it")
        processes.kill(engine)
    wait_for(lambda: response_of(loop_server, begun["id"])["status"] != "in_progress", "it was tried again", 60)
    assert response_of(loop_server, begun["id"])["status"] == "incomplete"


def test_a_response_in_the_background_fails_with_its_gateway(loop_server: LemonbusServer) -> None:
    wait_for(lambda: len(loop_server.gateway_pids()) == 2, "both gateways are there")
    one, other = loop_server.gateway_pids()
    with processes.stopped(other):
        begun = loop_server.client.post(RESPONSES, body(background=True)).json()
    wait_for(lambda: loop_server.busy_slots(LOOP) == 1, "its engine works")
    processes.kill(one)
    wait_for(lambda: loop_server.busy_slots(LOOP) == 0, "nothing works for it")
    ended = response_of(loop_server, begun["id"])
    assert (ended["status"], ended["error"]["code"]) == ("failed", "server_error")
    again = loop_server.client.post(RESPONSES, body(previous_response_id=begun["id"]))
    assert (again.status, again.error["param"]) == (400, "previous_response_id")


def test_a_client_that_leaves_stops_a_stream_and_not_the_background(loop_server: LemonbusServer) -> None:
    begun = loop_server.client.post(RESPONSES, body(background=True)).json()
    stream = loop_server.client.start("POST", RESPONSES, body(stream=True))
    stream.until(lambda it: len(deltas(it)) > 1)
    stream.hang_up()
    wait_for(lambda: loop_server.busy_slots(LOOP) == 1, "the stream has stopped")
    assert response_of(loop_server, begun["id"])["status"] == "in_progress"
    assert loop_server.client.post(f"{RESPONSES}/{begun['id']}/cancel", {}).json()["status"] == "cancelled"
    wait_for(lambda: loop_server.busy_slots(LOOP) == 0, "the other has stopped as well")
