"""A server over two machines, as its operator sees it: which node has which model, drains of one, and a node that is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import simple_websocket

from protocol.models.nodes import HEAD
from tests.conftest import StartServer
from tests.faults.supervisors.recoveries import kill_supervisor
from tests.support.node_agents import NodeUnderTest, node_of, node_states, wait_joined
from tests.support.ports import free_port_pair
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT, LOOP = "extra.tiny-chat", "extra.tiny-loop"
OTHER = "gpu2"
ENDLESS = 60_000
"""Tokens of an answer that does not end before the test ends it."""


@pytest.fixture
def server(start_server: StartServer) -> LemonbusServer:
    address = f"127.0.0.1:{free_port_pair()}"
    return start_server("tiny-chat", "tiny-loop", cluster_address=address, slots=1, ctx_size=65_536)


@pytest.fixture
def node(server: LemonbusServer) -> Iterator[NodeUnderTest]:
    with node_of(server, OTHER) as made:
        wait_joined(server, made)
        yield made


def drain(server: LemonbusServer, node: str, *, drained: bool = True) -> Any:
    return server.client.post(f"/internal/nodes/{node}/{'drain' if drained else 'undrain'}", {}).json()


def model_nodes(server: LemonbusServer) -> dict[str, str]:
    """Return ready model → the node that health names."""
    return {each["model_name"]: each["node"] for each in server.state()["models"] if each["state"] == "ready"}


def series(server: LemonbusServer, name: str, node: str) -> list[float]:
    """Return the values of a metric that name a node."""
    text = server.client.get("/metrics").body.decode()
    return [float(value) for value in re.findall(rf'^{name}{{[^}}]*node="{node}"[^}}]*}} (\S+)$', text, re.MULTILINE)]


def retained(server: LemonbusServer, **filters: str) -> list[dict[str, Any]]:
    """Return the retained lines of the log that match."""
    connection = simple_websocket.Client.connect(f"ws://127.0.0.1:{server.port}/logs/stream")
    try:
        connection.send(json.dumps({"type": "logs.subscribe", "after_seq": None, **filters}))
        entries: list[dict[str, Any]] = json.loads(connection.receive(timeout=10) or "{}")["entries"]
        return entries
    finally:
        connection.close()


@pytest.mark.usefixtures("node")
def test_the_node_of_a_model_is_named_wherever_the_model_is(server: LemonbusServer) -> None:
    assert drain(server, HEAD)["state"] == "drained"
    assert server.client.chat(CHAT, max_tokens=2).status == 200
    assert model_nodes(server) == {CHAT: OTHER}
    wait_for(lambda: node_states(server) == {HEAD: "drained", OTHER: "ready"}, "the states are shown")
    (loaded,) = server.health()["all_models_loaded"]
    assert loaded["node"] == OTHER

    overview = server.client.get("/internal/overview").json()
    assert overview["models"][CHAT]["node"] == OTHER
    assert overview["nodes"][OTHER]["models"] == [CHAT]
    wait_for(lambda: server.client.get("/internal/overview").json()["nodes"][OTHER].get("memory"), "it was read")
    wait_for(lambda: series(server, "lemonbus_node_up", OTHER) == [1.0], "the metrics name it")
    assert series(server, "lemonbus_node_drained", HEAD) == [1.0]
    wait_for(lambda: sum(series(server, "lemonbus_engine_memory_bytes", OTHER)), "the engine's memory is known")

    def processes() -> set[str]:
        return {str(entry["process"]) for entry in retained(server, node=OTHER)}

    wait_for(lambda: {"supervisor", "worker", "engine"} <= processes(), "all that is of or about it is in the log")
    (ready,) = [entry for entry in retained(server, node=OTHER) if entry["event"] == "model ready"]
    assert ready["model"] == CHAT
    assert {entry["node"] for entry in retained(server, node=OTHER)} == {OTHER}


def test_a_drained_node_breaks_no_stream_and_its_models_are_loaded_elsewhere(
    server: LemonbusServer, node: NodeUnderTest
) -> None:
    assert drain(server, HEAD)["state"] == "drained"
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=ENDLESS)
    stream.until(lambda it: len(it.events) > 2)
    assert drain(server, HEAD, drained=False)["state"] == "ready"
    drained = drain(server, OTHER)
    assert (drained["drained"], drained["models"]) == (True, [LOOP])
    kill_supervisor(server)
    later = server.client.start_chat(LOOP, stream=True, max_tokens=3)
    assert later.finish(60).done, "it has the only slot there, so this runs on the other node"
    seen = len(stream.events)
    stream.until(lambda it: len(it.events) > seen)
    wait_for(lambda: node_states(server) == {HEAD: "ready", OTHER: "draining"}, "the next supervisor goes on with it")

    stream.hang_up()
    wait_for(lambda: node_states(server) == {HEAD: "ready", OTHER: "drained"}, "nothing is left there")
    assert model_nodes(server) == {LOOP: HEAD}
    assert drain(server, OTHER, drained=False)["drained"] is False
    wait_for(lambda: node_states(server)[OTHER] == "ready", "it is used again")
    assert server.client.post("/internal/nodes/gpu3/drain", {}).status == 404
    assert node.process.poll() is None


def test_a_lost_node_is_a_problem_until_it_is_back_or_drained(server: LemonbusServer, node: NodeUnderTest) -> None:
    node.process.kill()
    node.process.wait(10)
    wait_for(lambda: node_states(server).get(OTHER) == "lost", "its end is noticed")
    problem = "node gpu2 is not reachable; the others serve without it"
    assert server.health()["problems"] == [problem]
    assert series(server, "lemonbus_node_up", OTHER) == [0.0]
    assert server.client.get("/readyz").status == 200
    assert server.client.chat(CHAT, max_tokens=2).status == 200
    assert model_nodes(server) == {CHAT: HEAD}
    assert drain(server, OTHER)["state"] == "lost"
    assert server.health()["problems"] == []
    assert drain(server, OTHER, drained=False)["state"] == "lost"
    assert server.health()["problems"] == [problem]

    node.start_again()
    wait_joined(server, node)
    assert server.health()["problems"] == []
    wait_for(lambda: series(server, "lemonbus_node_up", OTHER) == [1.0], "the metrics know it")
