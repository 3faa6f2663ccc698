"""Parts of Ray end while requests run: what clients of each node are told, and that the node comes back with Ray."""

from __future__ import annotations

import socket
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
NODE = socket.gethostname()
"""The name of the only node besides the head."""
PATIENCE_S = 6


@pytest.fixture
def patient_server(cluster: RayCluster, servers: ExitStack) -> ClusterServer:
    """A server with one model on the head and one on the other node, on a cluster of its own."""
    models = {LOOP: {"nodes": [NODE]}, CHAT: {"nodes": ["head"]}}
    server = servers.enter_context(ClusterServer(cluster, "tiny-loop", "tiny-chat", models=models))
    server.wait_joined()
    for model in models:
        server.load_on(model)
    return server


@pytest.fixture
def impatient_cluster() -> Iterator[RayCluster]:
    """A cluster whose processes end soon after its head."""
    with Network(2) as network, RayCluster(network, patience=PATIENCE_S) as cluster:
        yield cluster


def test_a_node_whose_raylet_is_killed_is_lost_and_comes_back(patient_server: ClusterServer) -> None:
    server, node = patient_server, patient_server.cluster.others[0]
    there = server.client.start_chat(LOOP, stream=True, max_tokens=1000)
    there.until(lambda it: len(it.events) > 2)
    here = server.client.start_chat(CHAT, stream=True, max_tokens=20)
    with processes.stopped(server.engine_on(node.network_node)):
        processes.kill(node.pid_of("raylet"))
        there.finish()
    assert not there.done
    assert there.error["code"] == "node_lost", there
    assert NODE in there.error["message"]
    here.finish(60)
    assert here.done
    assert here.text == CHAT_TEXT
    wait_for(lambda: not agents(node.network_node), "the agent has ended with its raylet")
    node.wait_end()
    server.cluster.restart(node)
    server.wait_joined()
    server.load_on(LOOP)
    assert server.client.chat(LOOP, max_tokens=5).status == 200
    assert_consistent(server)


def test_streams_go_on_without_the_head_of_the_cluster(patient_server: ClusterServer) -> None:
    server, (head, node) = patient_server, patient_server.cluster.nodes
    agent, job = server.agent_on(node.network_node), server.job_pid()
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=40)
    stream.until(lambda it: len(it.events) > 2)
    with processes.stopped(server.engine_on(node.network_node)):
        processes.kill(head.pid_of("gcs_server"))
        head.wait_end()
        server.wait_problem("Ray: ")
    stream.finish(60)
    assert stream.done
    assert stream.text == 2 * CHAT_TEXT
    assert server.client.chat(LOOP, max_tokens=5).status == 200
    assert server.agent_on(node.network_node) == agent
    assert_consistent(server)
    processes.kill(node.pid_of("raylet"))
    wait_for(lambda: not agents(node.network_node), "the agent has ended with its raylet")
    node.wait_end()
    for each in (head, node):
        server.cluster.restart(each)
    server.job_pid(but=job)
    server.wait_joined()
    wait_for(lambda: not server.ray_problems(), "Ray works again", 60.0)
    assert_consistent(server)


def test_agents_end_with_ray_when_the_head_stays_away(impatient_cluster: RayCluster, servers: ExitStack) -> None:
    server = servers.enter_context(ClusterServer(impatient_cluster, "tiny-chat"))
    server.wait_joined()
    head, node = impatient_cluster.nodes
    processes.kill(head.pid_of("gcs_server"))
    wait_for(lambda: not agents(node.network_node), "the agent has ended", PATIENCE_S + 30.0)
    # Ray may kill the agent, or let the kernel tell it to end: then it says that it leaves, and its node is not missed.
    wait_for(lambda: server.nodes() in ({}, {NODE: "lost"}), "its node is lost or has left")
    server.wait_problem("Ray: ")
    assert server.client.chat(CHAT, max_tokens=5).status == 200, "the head goes on"
