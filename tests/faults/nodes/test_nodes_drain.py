"""Agents are told to end while their nodes have streams: the streams are whole, and the models are loaded elsewhere."""

from __future__ import annotations

import os
import signal

from protocol.models.nodes import NODE_SILENCE_S
from tests.faults.nodes.conftest import LOOP, ServerWithNodes, begun
from tests.faults.supervisors.recoveries import kill_supervisor
from tests.support import processes
from tests.support.node_agents import joined, node_states, wait_joined
from tests.support.waiting import wait_for

WHOLE = 3000
"""Tokens of a stream that lasts for some seconds, and is read to its end."""
CUT = 60_000
"""Tokens of a stream that a test ends."""
REASON = "its agent was told to end"


def reasons(cluster: ServerWithNodes) -> dict[str, str]:
    """Return why each node of a server drains."""
    return {each["name"]: each["reason"] for each in cluster.server.state()["nodes"]}


def test_a_told_agent_ends_with_its_last_stream_and_its_models_are_served_elsewhere(cluster: ServerWithNodes) -> None:
    stream, node = begun(cluster, CUT)
    other = cluster.other(node)
    node.process.terminate()
    wait_for(lambda: node_states(cluster.server)[node.name] == "draining", "the node drains")
    assert reasons(cluster)[node.name] == REASON
    wait_for(other.engines, "its model is loaded on the other node")
    assert cluster.server.client.chat(LOOP, max_tokens=3).status == 200
    assert cluster.node_of(LOOP) in (node, other)
    whole = cluster.server.client.start_chat(LOOP, stream=True, max_tokens=10)
    assert whole.finish().done
    assert node.process.poll() is None, "its stream has not ended"
    stream.hang_up()
    assert node.wait_end() == 0
    node.assert_nothing_left()
    wait_for(lambda: node.name not in node_states(cluster.server), "the node has left, and is not missed")
    assert cluster.node_of(LOOP) is other
    node.start_again()
    wait_joined(cluster.server, node)
    assert reasons(cluster)[node.name] == ""


def test_the_stream_of_a_told_agent_is_whole_whatever_its_supervisor_does(cluster: ServerWithNodes) -> None:
    stream, node = begun(cluster, WHOLE)
    node.process.terminate()
    wait_for(lambda: reasons(cluster)[node.name] == REASON, "the node drains")
    assert kill_supervisor(cluster.server)["killed"] == []
    wait_for(lambda: reasons(cluster).get(node.name, REASON) == REASON, "the next supervisor knows it")
    assert stream.finish().done
    assert node.wait_end() == 0
    node.assert_nothing_left()
    assert cluster.server.client.chat(LOOP, max_tokens=3).status == 200


def test_without_a_supervisor_a_told_agent_waits_for_its_streams(cluster: ServerWithNodes) -> None:
    stream, node = begun(cluster, WHOLE)
    keeper = cluster.server.keeper_pid
    with processes.stopped(keeper):
        processes.kill(cluster.server.supervisor_pid)
        wait_for(lambda: node.logged("the supervisor is not reachable"), "the agent has noticed")
        node.process.terminate()
        assert stream.finish(60).done
        assert node.wait_end() == 0
        node.assert_nothing_left()
    wait_for(
        lambda: joined(cluster.server, cluster.other(node).name), "another supervisor serves", 30.0 + NODE_SILENCE_S
    )
    assert cluster.server.client.chat(LOOP, max_tokens=3).status == 200


def test_an_agent_that_is_told_twice_cuts_its_streams_which_are_told(cluster: ServerWithNodes) -> None:
    stream, node = begun(cluster, CUT)
    node.process.terminate()
    wait_for(lambda: reasons(cluster)[node.name] == REASON, "the node drains")
    os.kill(node.pid, signal.SIGTERM)
    assert stream.finish().error["code"] in ("node_lost", "events_lost")
    assert node.wait_end() == 0
    node.assert_nothing_left()
