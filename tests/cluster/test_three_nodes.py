"""Three machines on a network that is slow, loses packets, or is cut; and what Ray's autoscaler is asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.cluster.cluster_oracle import assert_consistent
from tests.cluster.cluster_server import ClusterServer
from tests.faults.conftest import LOOP
from tests.support import processes
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.network.nodes import Network
from tests.support.network.ray_cluster import RayCluster, agents
from tests.support.waiting import wait_for

CHAT = "extra.tiny-chat"
REQUESTED = """
import sys, ray
from ray.experimental.internal_kv import _internal_kv_get
from ray.autoscaler._private.constants import AUTOSCALER_RESOURCE_REQUEST_CHANNEL
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="error")
print((_internal_kv_get(AUTOSCALER_RESOURCE_REQUEST_CHANNEL) or b"[]").decode())
"""


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network(3) as network:
        yield network


@pytest.fixture(scope="module")
def three(network: Network) -> Iterator[RayCluster]:
    with RayCluster(network, npu=1) as cluster:
        yield cluster


@pytest.fixture
def server(three: RayCluster, servers: ExitStack) -> ClusterServer:
    """A server with a model on the second and one on the third node; both have the same host name, so they are called by address."""
    second, third = (node.network_node.address for node in three.others)
    models = {
        LOOP: {"nodes": [second]},
        CHAT: {"nodes": [third]},
        "extra.tiny-embed": {"node_resources": {"xpu": 2}},
    }
    server = servers.enter_context(ClusterServer(three, "tiny-loop", "tiny-chat", "tiny-embed", models=models))
    server.wait_joined(2)
    for model in (LOOP, CHAT):
        server.load_on(model)
    return server


def test_streams_are_whole_on_a_slow_network_that_loses_packets(server: ClusterServer, network: Network) -> None:
    network.worsen(delay=0.02, loss=0.01)
    try:
        streams = [
            server.client.start_chat(model, stream=True, max_tokens=40) for model in (LOOP, CHAT) for _ in range(3)
        ]
        for stream in streams:
            stream.finish(60)
            assert stream.done, stream
        assert {stream.text for stream in streams} == {2 * CHAT_TEXT, CHAT_TEXT}
        assert list(server.nodes().values()) == ["ready", "ready"]
        assert_consistent(server)
    finally:
        network.worsen()


def test_a_node_that_is_cut_off_is_lost_and_comes_back_with_another_agent(
    server: ClusterServer, network: Network
) -> None:
    cut, other = server.cluster.others
    (agent,) = agents(cut.network_node)
    there = server.client.start_chat(LOOP, stream=True, max_tokens=4000)
    there.until(lambda it: len(it.events) > 2)
    with processes.stopped(server.engine_on(cut.network_node)):
        network.link(cut.network_node, up=False)
        try:
            there.finish(30)
            assert there.error["code"] == "node_lost", there
            assert cut.network_node.address in there.error["message"]
            here = server.client.chat(CHAT, max_tokens=20)
            assert here.text == CHAT_TEXT, here
            wait_for(lambda: server.nodes()[cut.network_node.address] == "lost", "the node is lost")
        finally:
            network.link(cut.network_node, up=True)
    wait_for(lambda: list(server.nodes().values()) == ["ready", "ready"], "it is back", 60.0)
    assert [each.pid for each in agents(cut.network_node)] == [agent.pid], "the agent begins anew in the same process"
    server.load_on(LOOP)
    assert server.engine_on(cut.network_node)
    assert server.engine_on(other.network_node)
    assert_consistent(server)


def test_the_autoscaler_is_asked_for_what_no_node_has(server: ClusterServer) -> None:
    def requested() -> list[dict[str, float]]:
        done = subprocess.run(
            [sys.executable, "-c", REQUESTED, server.cluster.address],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return list(json.loads(done.stdout.splitlines()[-1]))

    assert requested() == []
    waiting = server.client.start("POST", "/v1/embeddings", {"model": "extra.tiny-embed", "input": "x"})
    wait_for(lambda: any(each.get("xpu") == 2 for each in requested()), "two xpu are requested", 60.0)
    waiting.hang_up()
    server.stop()
    assert requested() == [], "the end of a server withdraws its request"
