"""Three models over two nodes and 32 clients: one node ends at once, or is cut off. What each client is told, and when."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack

import pytest

from tests.cluster.cluster_oracle import WORDS, ConcurrentRequests, assert_consistent
from tests.cluster.cluster_server import ClusterServer
from tests.support import processes
from tests.support.network.nodes import Network
from tests.support.network.ray_cluster import RayCluster
from tests.support.waiting import wait_for

NODE = socket.gethostname()
"""The name of the only node besides the head."""
HERE = "extra.loop-a"
THERE = ("extra.loop-b", "extra.loop-c")
SLOTS = 4
LONG, SPAN, SHORT = 400 * WORDS, 60 * WORDS, 2 * WORDS
"""Tokens of three requests: one that the fault ends, one that is running before and after it, and one that waits."""
TELL_S = 30.0
"""Within this many seconds, each stream of the lost node must end, however busy this machine is.

How soon that is on an idle one, `make bench ARGS=node-loss` measures; 3 s of silence are checked in `test_node_registry.py`.
"""


@pytest.fixture
def server(cluster: RayCluster, servers: ExitStack) -> ClusterServer:
    """A server with one of its models on the head and two on the other node, which may run on both."""
    sections = {HERE: {"nodes": ["head"]}}
    server = servers.enter_context(ClusterServer(cluster, "tiny-loop", slots=SLOTS, ctx_size=65_536, models=sections))
    for model in (HERE, *THERE):
        (server.models / f"{model.removeprefix('extra.')}.gguf").symlink_to(server.models / "tiny-loop.gguf")
    server.wait_joined()
    server.drain("head")
    for model in THERE:
        server.load_on(model)
    server.drain("head", drained=False)
    server.load_on(HERE)
    assert server.places() == {HERE: "head", **dict.fromkeys(THERE, NODE)}
    return server


@pytest.mark.parametrize("end", ["killed", "cut off"])
def test_only_those_with_tokens_from_a_lost_node_notice_it(
    server: ClusterServer, cluster: RayCluster, end: str
) -> None:
    node = cluster.others[0]
    network: Network = cluster.network
    engines = [server.engine_pid(HERE), *(each.pid for each in node.network_node.processes() if is_engine(each))]
    assert len(engines) == 3
    with ConcurrentRequests(server) as clients:
        with processes.slowed(*engines):
            whole = clients.begin(HERE, SPAN, SLOTS)
            broken = [each for model in THERE for each in clients.begin(model, LONG, SLOTS)]
            for stream in (True, False):
                whole += clients.start(HERE, SHORT, 2, stream=stream)
                whole += [each for model in THERE for each in clients.start(model, SHORT, 4, stream=stream)]
            assert len(clients.all) == 32
            wait_for(lambda: server.state()["queued"] == 20, "the others wait for slots")
            began = time.monotonic()
            if end == "killed":
                node.network_node.kill_all()
            else:
                network.link(node.network_node, up=False)
            delays = [each.check_lost(NODE) - began for each in broken]
        for each in whole:
            each.check_whole()
    first = [each.exchange.messages[0].at - began for each in whole if each.model in THERE and each.exchange.events]
    print(f"{end}: told after {max(delays):.1f} s; the others had a token after {min(first):.1f} to {max(first):.1f} s")
    assert max(delays) < TELL_S
    assert max(each.ended_at for each in whole if each.tokens == SPAN) - began > max(delays), "they outlived the fault"
    assert server.places() == dict.fromkeys((HERE, *THERE), "head")
    assert f"node {NODE} is not reachable; the others serve without it" in server.problems()
    if end == "killed":
        assert_consistent(server)
        node.wait_end()
        cluster.restart(node)
    else:
        network.link(node.network_node, up=True)
    server.wait_joined()
    assert_consistent(server)
    wait_for(lambda: not server.problems(), "no problem is left", 60.0)


def is_engine(process: processes.ProcessInfo) -> bool:
    return process.mentions("llama_server")
