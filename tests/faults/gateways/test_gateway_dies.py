"""SIGKILL of a gunicorn worker, and of the master: answers without a reader end, and the gateway comes back."""

from __future__ import annotations

import os
import signal

from tests.fake_engines.generation.slow_generation import text_of
from tests.faults.conftest import CALM, ENDLESS, LOOP
from tests.faults.gateways.gateway_streams import streams_at_each
from tests.support import processes
from tests.support.descriptors import no_descriptors
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for


def test_a_killed_gateway_stops_only_its_own_generations(calm_server: LemonbusServer) -> None:
    begun = streams_at_each(calm_server, CALM, 30, count=2, last_tokens=8000)
    dead = begun[-1][1]  # their streams are far from the end
    os.kill(dead, signal.SIGKILL)
    streams = [stream for stream, _ in begun]
    survivors = [stream for stream, gateway in begun if gateway != dead]
    assert len(survivors) == 2
    wait_for(lambda: calm_server.busy_slots(CALM) <= len(survivors), "its generations stopped at the engine")
    for stream in streams:
        stream.finish()
        assert stream.done == (stream in survivors)
        assert stream.complete == (stream in survivors)
    assert {stream.text for stream in survivors} == {text_of(30)}
    wait_for(lambda: len(calm_server.gateway_pids()) == 2, "it was replaced")


def test_a_gateway_that_cannot_be_forked_ends_no_other(calm_server: LemonbusServer) -> None:
    begun = streams_at_each(calm_server, CALM, 30)
    (stream, _), (_, dead) = begun
    seen = len(calm_server.lines)
    with no_descriptors(calm_server.gateway_master()):
        os.kill(dead, signal.SIGKILL)
        wait_for(
            lambda: [
                line for line in calm_server.lines[seen:] if line["event"] == "gateway worker could not be started"
            ],
            "it is tried and reported",
        )
    stream.finish()
    assert stream.done
    wait_for(lambda: len(calm_server.gateway_pids()) == 2, "it was replaced as soon as that was possible")


def test_a_request_that_had_not_subscribed_yet_is_also_stopped(loop_server: LemonbusServer) -> None:
    server = loop_server
    assert server.client.post("/v1/unload", {"model_name": LOOP}).status == 200
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=ENDLESS)
    wait_for(lambda: server.model_state(LOOP), "its model is being loaded")
    os.kill(server.gateway_of(stream), signal.SIGKILL)
    stream.finish()
    assert not stream.complete
    wait_for(lambda: len(server.gateway_pids()) == 2, "the gateway is back")
    server.wait_loaded(LOOP)
    server.assert_idle()
    wait_for(lambda: server.busy_slots(LOOP) == 0, "the engine is idle")


def test_a_killed_master_breaks_streams_and_comes_back(loop_server: LemonbusServer) -> None:
    server = loop_server
    streams = [server.client.start_chat(LOOP, stream=True, max_tokens=ENDLESS) for _ in range(3)]
    whole = server.client.start_chat(LOOP, max_tokens=ENDLESS)
    for stream in streams:
        stream.until(lambda it: len(it.events) > 1)
    master = server.gateway_master()
    processes.kill(master)
    for stream in [*streams, whole]:
        stream.finish()
        assert not stream.done
        assert not stream.complete, "broken, never complete"
    wait_for(lambda: server.gateway_master() not in (0, master), "another master")
    server.wait_ready()
    wait_for(lambda: len(server.gateway_pids()) == 2, "both gateways serve again")
    wait_for(lambda: server.busy_slots(LOOP) == 0, "nothing is generated without a client")
    assert server.client.chat(LOOP, max_tokens=3).status == 200
