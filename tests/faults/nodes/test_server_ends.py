"""The end of the server is the end of its nodes."""

from __future__ import annotations

import pytest

from tests.conftest import StartServer
from tests.faults.nodes.conftest import CHAT, ELSEWHERE
from tests.support.node_agents import node_of, wait_joined
from tests.support.ports import free_port_pair

GRACE = 2.0


@pytest.mark.parametrize("end", ["in order", "killed"])
def test_the_end_of_the_server_is_the_end_of_its_nodes(start_server: StartServer, end: str) -> None:
    server = start_server(
        "tiny-chat", cluster_address=f"127.0.0.1:{free_port_pair()}", models={CHAT: ELSEWHERE}, grace=GRACE
    )
    with node_of(server, "gpu1") as node:
        wait_joined(server, node)
        assert server.client.chat(CHAT, max_tokens=3).status == 200
        assert node.engines()
        if end == "in order":
            server.stop()
        else:
            server.kill_keeper()
        assert node.wait_end() == (0 if end == "in order" else 1)
        node.assert_nothing_left()
