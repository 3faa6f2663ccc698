"""Ray is stopped in order on a node while models run there: its streams are whole, and nothing is left."""

from __future__ import annotations

import signal
import socket
from contextlib import ExitStack

from tests.cluster.cluster_oracle import assert_consistent
from tests.cluster.cluster_server import ClusterServer
from tests.faults.conftest import LOOP
from tests.support.network.ray_cluster import RayCluster, agents
from tests.support.waiting import wait_for

NODE = socket.gethostname()
"""The name of the only node besides the head."""
TOKENS = 2000
"""Of a stream that takes longer than Ray needs to say that it is about to end."""
NOTICE_S = 20.0
"""Seconds within which the server must have heard of it; Ray waits for its actors for 30 s."""


def test_streams_of_a_node_where_ray_is_told_to_end_are_whole(cluster: RayCluster, servers: ExitStack) -> None:
    server = servers.enter_context(ClusterServer(cluster, "tiny-loop"))
    server.wait_joined()
    server.drain("head")
    server.load_on(LOOP)
    node = cluster.others[0]
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=TOKENS)
    stream.until(lambda it: len(it.events) > 2)
    server.drain("head", drained=False)
    node.process.send_signal(signal.SIGTERM)
    wait_for(lambda: server.nodes().get(NODE) == "draining", "the node drains", NOTICE_S)
    assert node.process.poll() is None
    stream.finish(60)
    assert stream.done
    wait_for(lambda: not agents(node.network_node), "the agent has ended with its last stream")
    wait_for(lambda: NODE not in server.nodes(), "the node has left, and is not missed")
    node.wait_end()
    assert server.client.chat(LOOP, max_tokens=5).status == 200, "the head has the model"
    cluster.restart(node)
    server.wait_joined()
    assert_consistent(server)
