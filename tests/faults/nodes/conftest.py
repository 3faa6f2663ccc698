"""A server with two other nodes on this machine. When a test begins, both are there, whatever the last one did."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final, NamedTuple

import pytest

from tests.conftest import StartServer
from tests.support.clients.http_exchange import HttpExchange
from tests.support.node_agents import NodeUnderTest, node_of, wait_joined
from tests.support.ports import free_port_pair
from tests.support.server import LemonbusServer

LOOP: Final = "extra.tiny-loop"
CHAT: Final = "extra.tiny-chat"
ELSEWHERE: Final = {"nodes": ["gpu*"]}
"""A section of a model that never runs on the head."""


class ServerWithNodes(NamedTuple):
    """A server, and its other nodes by name."""

    server: LemonbusServer
    nodes: dict[str, NodeUnderTest]

    def node_of(self, model: str) -> NodeUnderTest:
        """Return the node where a model is loaded."""
        shown = {each["model_name"]: each["node"] for each in self.server.state()["models"]}
        return self.nodes[shown[model]]

    def other(self, node: NodeUnderTest) -> NodeUnderTest:
        """Return the node that is not this one."""
        return next(each for each in self.nodes.values() if each is not node)


def begun(cluster: ServerWithNodes, tokens: int) -> tuple[HttpExchange, NodeUnderTest]:
    """Return a stream that has begun, and the node where its model runs."""
    stream = cluster.server.client.start_chat(LOOP, stream=True, max_tokens=tokens)
    stream.until(lambda it: len(it.events) > 2)
    return stream, cluster.node_of(LOOP)


@pytest.fixture(scope="module")
def started_cluster(start_module_server: StartServer) -> Iterator[ServerWithNodes]:
    """The server and the nodes that the tests of a module share."""
    server = start_module_server(
        "tiny-loop",
        "tiny-chat",
        gateway_workers=1,
        ctx_size=65_536,
        breaker_deaths=10_000,
        cluster_address=f"127.0.0.1:{free_port_pair()}",
        models={LOOP: ELSEWHERE, CHAT: ELSEWHERE},
    )
    with ExitStack() as stack:
        nodes = {name: stack.enter_context(node_of(server, name)) for name in ("gpu1", "gpu2")}
        yield ServerWithNodes(server, nodes)


@pytest.fixture
def cluster(started_cluster: ServerWithNodes) -> ServerWithNodes:
    """:func:`started_cluster` with both nodes."""
    for node in started_cluster.nodes.values():
        if node.process.poll() is not None:
            node.start_again()
        wait_joined(started_cluster.server, node)
    return started_cluster
