"""A node in a network namespace of its own, whose link breaks for longer than the supervisor waits, and is mended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import StartServer
from tests.faults.nodes.conftest import ELSEWHERE, LOOP
from tests.support.network.nodes import Network
from tests.support.node_agents import joined, node_of, node_states, wait_joined
from tests.support.ports import free_port_pair
from tests.support.waiting import wait_for


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(2) as made:
        yield made


def test_a_node_whose_link_breaks_is_told_as_lost_and_begins_anew(network: Network, start_server: StartServer) -> None:
    head, other = network.nodes
    server = start_server(
        "tiny-loop", cluster_address=f"{head.address}:{free_port_pair()}", models={LOOP: ELSEWHERE}, ctx_size=65_536
    )
    with node_of(server, "gpu1", prefix=tuple(other.command())) as node:
        wait_joined(server, node)
        stream = server.client.start_chat(LOOP, stream=True, max_tokens=60_000).until(lambda it: len(it.events) > 2)
        before = {each.pid for each in node.workers()}
        network.link(other, up=False)
        assert stream.finish().error["code"] == "node_lost"
        wait_for(lambda: node_states(server).get("gpu1") == "lost", "the node is lost")
        assert before <= {each.pid for each in node.workers()}, "they may be reached again, and are not yet told"
        network.link(other, up=True)
        wait_for(lambda: joined(server, "gpu1"), "the node has joined again", 30.0)
        wait_for(lambda: not before & {each.pid for each in node.workers()}, "what ran there has ended")
        assert server.client.chat(LOOP, max_tokens=3).status == 200
