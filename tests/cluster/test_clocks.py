"""A node whose clock is an hour ahead: real agent, worker and engine there, without Ray, which does not run with such a clock."""

from __future__ import annotations

from tests.conftest import StartServer
from tests.faults.nodes.conftest import ELSEWHERE, LOOP
from tests.support import processes
from tests.support.clock import with_shifted_clock
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.network.nodes import Network
from tests.support.node_agents import NodeUnderTest, node_of, node_states, wait_joined
from tests.support.ports import free_port_pair
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

HOUR_S = 3600


def check_streams(server: LemonbusServer, node: NodeUnderTest) -> None:
    """Check that streams are whole, and that the model runs once, on this node."""
    streams = [server.client.start_chat(LOOP, stream=True, max_tokens=40) for _ in range(4)]
    for stream in streams:
        stream.finish(60)
        assert (stream.status, stream.text, stream.done) == (200, 2 * CHAT_TEXT, True), stream
    assert [(each["model_name"], each["node"]) for each in server.state()["models"]] == [(LOOP, node.name)]
    [engine] = node.engines()
    assert processes.environment(engine.pid)["FAKETIME"] == f"+{HOUR_S}s"
    server.assert_idle()


def test_clocks_that_are_an_hour_apart_change_nothing(start_server: StartServer) -> None:
    words = with_shifted_clock(HOUR_S)
    with Network(2) as network:
        head, other = network.nodes
        server = start_server(
            "tiny-loop", cluster_address=f"{head.address}:{free_port_pair()}", models={LOOP: ELSEWHERE}, ctx_size=65_536
        )
        with node_of(server, "gpu1", prefix=(*other.command(), *words)) as node:
            wait_joined(server, node)
            check_streams(server, node)
            (shown,) = server.client.get("/internal/nodes").json()["nodes"][1:]
            assert 0 <= shown["age_seconds"] < HOUR_S / 2
            broken = server.client.start_chat(LOOP, stream=True, max_tokens=60_000).until(lambda it: len(it.events) > 2)
            processes.kill(node.pid)
            node.wait_end()
            assert broken.finish().error["code"] == "node_lost"
            wait_for(lambda: node_states(server)["gpu1"] == "lost", "the node is lost")
            node.start_again()
            wait_joined(server, node)
            check_streams(server, node)
        server.stop()
