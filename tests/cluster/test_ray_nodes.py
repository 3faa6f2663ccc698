"""A node of a Ray cluster joins the server, and again after whatever has ended there. The cluster itself stays."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.cluster_server import ClusterServer
from tests.support import processes
from tests.support.network.ray_cluster import RayCluster, agents, has_actor
from tests.support.waiting import wait_for


def test_a_node_joins_with_what_ray_says_of_it(server: ClusterServer) -> None:
    (node,) = [each for each in server.client.get("/internal/nodes").json()["nodes"] if each["name"] != "head"]
    assert (node["address"], node["resources"]) == (server.cluster.others[0].network_node.address, {"npu": 1.0})
    assert node["name"] == socket.gethostname(), "no other node but the head has this host name"
    assert not server.ray_problems()


@pytest.mark.parametrize("ended", ["agent", "actor"])
def test_an_agent_is_started_again(server: ClusterServer, ended: str) -> None:
    node = server.cluster.others[0].network_node
    (agent,) = agents(node)
    processes.kill(agent.pid if ended == "agent" else agent.parent)
    assert server.agent_on(node, but=agent.pid) != agent.pid
    server.wait_joined()
    assert not processes.alive(agent.pid)


def test_agents_go_on_without_the_job_and_the_next_one_finds_them(server: ClusterServer) -> None:
    node = server.cluster.others[0].network_node
    agent, job = server.agent_on(node), server.job_pid()
    processes.kill(job)
    server.job_pid(but=job)
    wait_for(lambda: any(line["event"] == "node agent found" for line in server.lines), "the actor is found")
    wait_for(lambda: not server.ray_problems(), "Ray works again", 30.0)
    assert server.agent_on(node) == agent
    assert list(server.nodes().values()) == ["ready"]


def test_job_and_agents_go_on_with_the_next_supervisor(server: ClusterServer) -> None:
    node = server.cluster.others[0].network_node
    agent, job = server.agent_on(node), server.job_pid()
    supervisor = server.kill_supervisor()
    wait_for(lambda: server.supervisor_pid != supervisor, "another supervisor")
    server.wait_joined()
    assert (server.agent_on(node), server.job_pid()) == (agent, job)
    processes.kill(agent)  # the job still watches it
    server.agent_on(node, but=agent)
    server.wait_joined()


def test_a_server_that_is_killed_leaves_nothing(shared_cluster: RayCluster, servers: ExitStack) -> None:
    server = servers.enter_context(ClusterServer(shared_cluster, grace=2.0))
    server.wait_joined()
    server.kill_keeper()
    node = shared_cluster.others[0].network_node
    wait_for(lambda: not agents(node) and not has_actor(node), "agent and actor have ended after the grace", 30.0)


def test_the_next_start_goes_on_with_the_agents_of_a_server_that_was_killed(
    shared_cluster: RayCluster, servers: ExitStack, tmp_path: Path
) -> None:
    node = shared_cluster.others[0].network_node
    first = servers.enter_context(ClusterServer(shared_cluster, state_dir=str(tmp_path)))
    first.wait_joined()
    agent = first.agent_on(node)
    first.kill_keeper()
    second = servers.enter_context(ClusterServer(shared_cluster, state_dir=str(tmp_path)))
    second.wait_joined()
    assert second.agent_on(node) == agent


def test_the_next_server_joins_after_the_end_of_one_that_was_killed(
    shared_cluster: RayCluster, servers: ExitStack
) -> None:
    first = servers.enter_context(ClusterServer(shared_cluster, grace=2.0))
    first.wait_joined()
    first.kill_keeper()
    first.assert_nothing_left()
    servers.enter_context(ClusterServer(shared_cluster)).wait_joined()
