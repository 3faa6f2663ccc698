"""A node whose link or disk is faulty. After each fault, the same oracle judges all answers, processes, health and metrics."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.cluster.cluster_oracle import WORDS, ConcurrentRequests, assert_consistent
from tests.cluster.cluster_server import ClusterServer
from tests.support import processes
from tests.support.network.nodes import Network
from tests.support.network.ray_cluster import RayCluster
from tests.support.waiting import pause, wait_for

NODE = socket.gethostname()
"""The name of the only node besides the head."""
HERE, THERE, NEXT, LARGE = "extra.tiny-loop", "extra.loop-b", "extra.tiny-think", "extra.tiny-slow"
MODELS = {HERE: {"nodes": ["head"]}, **{model: {"nodes": [NODE]} for model in (THERE, NEXT, LARGE)}}
LONG, SHORT = 60 * WORDS, 2 * WORDS
DISK = 160 << 20
"""Bytes: enough for the models, and what must stay free."""


def started(cluster: RayCluster, servers: ExitStack) -> ClusterServer:
    """Return a server with one model on the head and one on the other node."""
    files = [model.removeprefix("extra.") for model in (HERE, NEXT, LARGE)]
    server = servers.enter_context(ClusterServer(cluster, *files, slots=4, models=MODELS))
    (server.models / "loop-b.gguf").symlink_to(server.models / "tiny-loop.gguf")
    server.wait_joined()
    for model in (HERE, THERE):
        server.load_on(model)
    return server


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network(2) as network:
        yield network


@pytest.fixture(scope="module")
def cluster(network: Network) -> Iterator[RayCluster]:
    with RayCluster(network, disk=DISK) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def shared_server(cluster: RayCluster) -> Iterator[ClusterServer]:
    with ExitStack() as servers:
        yield started(cluster, servers)


@pytest.fixture
def server(shared_server: ClusterServer) -> ClusterServer:
    """A server with both models loaded, whatever the last test did."""
    shared_server.wait_joined()
    shared_server.load_on(THERE)
    return shared_server


def engines(server: ClusterServer) -> list[int]:
    """Return the pids of both engines."""
    return [server.engine_pid(HERE), server.engine_on(server.cluster.others[0].network_node)]


@pytest.mark.parametrize("seconds", [3.0, 30.0])
def test_a_link_that_is_down_for_a_while(server: ClusterServer, network: Network, seconds: float) -> None:
    node = server.cluster.others[0].network_node
    with ConcurrentRequests(server) as clients:
        with processes.slowed(*engines(server)):
            here, there = clients.begin(HERE, LONG, 4), clients.begin(THERE, LONG, 4)
            waiting = clients.start(THERE, SHORT, 4)
            network.link(node, up=False)
            try:
                pause(seconds)
                late = clients.start(THERE, SHORT, 2, stream=False)
            finally:
                network.link(node, up=True)
        for each in here:
            each.check_whole()
        for each in (*there, *waiting, *late):
            each.check_honest(NODE)
    server.wait_joined()
    server.load_on(THERE)
    assert server.client.chat(THERE, max_tokens=SHORT).status == 200
    assert_consistent(server)


def test_a_full_disk_ends_nothing_that_runs(server: ClusterServer) -> None:
    node = server.cluster.others[0]
    with node.full_disk(), ConcurrentRequests(server) as clients:
        with processes.slowed(*engines(server)):
            running = clients.begin(THERE, LONG, 4) + clients.start(THERE, SHORT, 4)
            refused = server.client.post("/v1/load", {"model_name": NEXT}, 60.0)
        for each in running:
            each.check_whole()
        assert (refused.status, refused.error["code"]) == (507, "insufficient_storage"), refused
        assert "not enough disk space" in refused.error["message"], refused
        assert NODE in refused.error["message"], refused
        assert "node_files" in refused.error["detail"], refused
    server.load_on(NEXT)
    assert server.places() == {HERE: "head", THERE: NODE, NEXT: NODE}
    assert server.client.post("/v1/unload", {"model_name": NEXT}).status == 200
    assert_consistent(server)


def test_a_disk_that_stands_still_delays_only_the_model_that_is_copied(server: ClusterServer) -> None:
    """The disk of a test cannot be slow, so the job that writes there is stopped, as a write to a slow disk would stop it."""
    node = server.cluster.others[0].network_node

    def writing() -> int:
        return next((each.pid for each in node.processes() if each.runs("workers.jobs.receive_files")), 0)

    with ConcurrentRequests(server) as clients:
        slow = server.client.start("POST", "/v1/load", {"model_name": LARGE})
        with processes.stopped(wait_for(writing, "its files are being copied")):
            for each in clients.start(THERE, LONG, 4) + clients.start(HERE, SHORT, 4):
                each.check_whole()
            assert server.nodes() == {NODE: "ready"}
            assert LARGE not in server.places()
        assert slow.finish(120.0).status == 200
    assert server.client.chat(LARGE, max_tokens=2).status == 200
    assert server.client.post("/v1/unload", {"model_name": LARGE}).status == 200
    assert_consistent(server)
