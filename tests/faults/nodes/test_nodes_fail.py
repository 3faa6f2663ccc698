"""Models on other nodes, whose workers, agents and supervisor are killed and stopped: real agents, engines and streams."""

from __future__ import annotations

import os
import signal
import time

import pytest

from protocol.models.nodes import NODE_SILENCE_S
from tests.faults.nodes.conftest import CHAT, LOOP, ServerWithNodes, begun
from tests.faults.supervisors.recoveries import kill_supervisor
from tests.support import processes
from tests.support.node_agents import NodeUnderTest, joined, wait_joined
from tests.support.remote_gateway import RemoteGateway
from tests.support.waiting import wait_for

WHOLE = 3000
"""Tokens of a stream that lasts for some seconds, and is read to its end."""
CUT = 60_000
"""Tokens of a stream that a test ends."""
SURELY_SHORT_S = NODE_SILENCE_S - 0.5
"""A break for less than this loses nothing."""
MOST_BREAKS = 5
"""At most this number of breaks is tried until one is short enough."""


def lost(cluster: ServerWithNodes, node: NodeUnderTest) -> int:
    """How often the server has lost a node so far."""
    return sum(line["event"] == "node lost" and line["node"] == node.name for line in cluster.server.lines)


def worker_of(node: NodeUnderTest) -> int:
    """The only worker of a node that has an engine."""
    [engine] = node.engines()
    return engine.parent


def test_a_model_of_another_node_is_served(cluster: ServerWithNodes) -> None:
    answer = cluster.server.client.chat(CHAT, max_tokens=5)
    assert answer.status == 200
    node = cluster.node_of(CHAT)
    assert any("tiny-chat" in word for engine in node.engines() for word in engine.words)
    assert not [each for each in cluster.server.process_tree() if each.runs("workers.engine_servers.llama_server")]
    stream = cluster.server.client.start_chat(CHAT, stream=True, max_tokens=5).finish()
    assert stream.done
    text = "".join(
        choice["delta"].get("content") or ""
        for event in stream.events
        if event.data.startswith("{")
        for choice in event.json()["choices"]
    )
    assert text == answer.json()["choices"][0]["message"]["content"]
    assert cluster.server.client.post("/v1/unload", {"model_name": CHAT}).status == 200


def test_a_stream_survives_the_supervisor(cluster: ServerWithNodes) -> None:
    stream, node = begun(cluster, WHOLE)
    losses = lost(cluster, node)
    found = kill_supervisor(cluster.server)
    assert found["workers"] >= 1
    assert found["killed"] == []
    assert stream.finish().done
    assert lost(cluster, node) == losses
    worker = worker_of(node)
    assert cluster.server.client.chat(LOOP, max_tokens=3).status == 200
    assert worker_of(node) == worker


def test_a_killed_worker_is_told_and_its_model_is_loaded_again(cluster: ServerWithNodes) -> None:
    stream, node = begun(cluster, CUT)
    losses = lost(cluster, node)
    processes.kill(worker_of(node))
    assert stream.finish().error["code"] == "worker_gone"
    assert cluster.server.client.chat(LOOP, max_tokens=3).status == 200
    assert lost(cluster, node) == losses


def test_a_killed_agent_takes_everything_with_it_and_its_streams_are_told(cluster: ServerWithNodes) -> None:
    stream, node = begun(cluster, CUT)
    processes.kill(node.pid)
    node.process.wait()
    assert stream.finish().error["code"] in ("node_lost", "events_lost")
    node.assert_nothing_left(5.0)
    assert cluster.server.client.chat(LOOP, max_tokens=3).status == 200
    assert cluster.node_of(LOOP) is cluster.other(node)


def test_a_client_of_a_gateway_elsewhere_also_hears_which_node_was_lost(cluster: ServerWithNodes) -> None:
    with RemoteGateway.of(cluster.server) as gateway:
        for _ in range(MOST_BREAKS):
            stream = gateway.client.start_chat(LOOP, stream=True, max_tokens=CUT)
            stream.until(lambda it: len(it.events) > 2)
            node = cluster.node_of(LOOP)
            processes.kill(node.pid)
            node.process.wait()
            error = stream.finish().error
            node.start_again()
            wait_joined(cluster.server, node)
            if error["code"] != "events_lost":  # otherwise the supervisor stood still for half a second
                break
    assert error["code"] == "node_lost"
    assert node.name in error["message"]


def test_a_client_without_a_token_notices_nothing_of_a_killed_node(cluster: ServerWithNodes) -> None:
    assert cluster.server.client.chat(LOOP, max_tokens=3).status == 200
    node = cluster.node_of(LOOP)
    [engine] = node.engines()
    processes.stop(engine.pid)
    waiting = [cluster.server.client.start_chat(LOOP, stream=stream, max_tokens=3) for stream in (False, True)]
    wait_for(lambda: cluster.server.state()["granted"] == len(waiting), "the engine has the requests")
    processes.kill(node.pid)
    node.process.wait()
    whole, stream = (request.finish() for request in waiting)
    assert (whole.status, stream.status) == (200, 200)
    assert stream.done
    assert cluster.node_of(LOOP) is cluster.other(node)
    node.assert_nothing_left()


def test_an_agent_that_is_stopped_for_a_moment_loses_nothing(cluster: ServerWithNodes) -> None:
    for _ in range(MOST_BREAKS):
        stream, node = begun(cluster, WHOLE)
        losses = lost(cluster, node)
        silences = silent(cluster, node)
        began = time.monotonic()
        with processes.stopped(node.pid):
            wait_for(lambda silences=silences, node=node: silent(cluster, node) > silences, "the silence is noticed")
        lasted = time.monotonic() - began
        ended = stream.finish()
        wait_joined(cluster.server, node)
        if lasted <= SURELY_SHORT_S:  # otherwise this process itself stood still
            assert (ended.done, lost(cluster, node)) == (True, losses)
            return
    raise AssertionError(f"of {MOST_BREAKS} breaks, each lasted more than {SURELY_SHORT_S} s")


def silent(cluster: ServerWithNodes, node: NodeUnderTest) -> int:
    """How often an agent did not answer for a moment, or for longer."""
    return sum(line["event"] == "node does not answer" and line["node"] == node.name for line in cluster.server.lines)


def test_an_agent_that_is_stopped_for_longer_loses_everything_and_begins_anew(cluster: ServerWithNodes) -> None:
    stream, node = begun(cluster, CUT)
    before = {each.pid for each in node.process_tree()} - {node.pid}
    with processes.stopped(node.pid):
        error = stream.finish().error
        assert error["code"] == "node_lost"
        assert node.name in error["message"]
        assert LOOP in error["message"]
        assert error["request_id"]
        assert cluster.server.client.chat(LOOP, max_tokens=3).status == 200
        assert cluster.node_of(LOOP) is cluster.other(node)
    wait_for(lambda: joined(cluster.server, node.name), f"{node.name} has joined again", 30.0)
    wait_for(lambda: not before & {each.pid for each in node.process_tree()}, "what ran there has ended")


@pytest.mark.parametrize("earlier", [False, True])
def test_a_node_that_dies_with_the_supervisor_or_before_it_is_lost(cluster: ServerWithNodes, earlier: bool) -> None:
    stream, node = begun(cluster, CUT)
    losses, silences = lost(cluster, node), silent(cluster, node)
    if earlier:
        processes.kill(node.pid)
        wait_for(lambda: silent(cluster, node) > silences, "the silence is noticed")
    kill_supervisor(cluster.server, node.pid)
    node.process.wait()
    error = stream.finish().error
    assert error["code"] in ("node_lost", "events_lost"), error  # the latter if the next supervisor began late
    assert node.name in error["message"]
    wait_for(lambda: lost(cluster, node) > losses, "the next supervisor knows that the node is lost")
    assert cluster.server.client.chat(LOOP, max_tokens=3).status == 200
    node.assert_nothing_left(5.0)


def test_a_node_that_is_told_to_end_twice_leaves_nothing(cluster: ServerWithNodes) -> None:
    stream, node = begun(cluster, CUT)
    for number in (signal.SIGTERM, signal.SIGINT):  # the second signal; two of the same kind may count as one
        os.kill(node.pid, number)
    assert node.wait_end() == 0
    assert stream.finish().error["code"] in ("node_lost", "events_lost")
    node.assert_nothing_left(5.0)
    assert cluster.server.client.chat(LOOP, max_tokens=3).status == 200
