"""Everything on the head is killed at once, as if its machine had died; the next start finds what lives on other nodes."""

from __future__ import annotations

import contextlib
from typing import Any

from supervisor.persistence import cluster_run
from tests.conftest import StartServer
from tests.faults.nodes.conftest import CHAT, ELSEWHERE
from tests.support import processes
from tests.support.node_agents import boot, joined, node_of, wait_joined
from tests.support.ports import free_port_pair
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for


def kill_head(server: LemonbusServer) -> None:
    """Kill everything on the head, the keeper first, so that it cannot start anything."""
    server.kill_keeper()
    while left := server.process_tree():
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                processes.kill(process.pid)


def test_the_next_start_takes_over_what_lives_on_other_nodes(start_server: StartServer) -> None:
    settings: dict[str, Any] = {
        "cluster_address": f"127.0.0.1:{free_port_pair()}",
        "models": {CHAT: ELSEWHERE},
        "grace": 120.0,
    }
    first = start_server("tiny-chat", **settings)
    with node_of(first, "gpu1") as node:
        wait_joined(first, node)
        assert first.client.chat(CHAT, max_tokens=3).status == 200
        [engine] = node.engines()
        kill_head(first)
        folders = {"state_dir": str(first.home / "state"), "extra_models_dir": str(first.models)}
        second = start_server("tiny-chat", **settings, **folders)
        wait_for(lambda: joined(second, "gpu1"), "the node is in the next server")
        assert boot(second) == boot(first)
        assert second.client.chat(CHAT, max_tokens=3).status == 200
        assert node.engines() == [engine]
        second.stop()
        assert node.wait_end() == 0
    assert cluster_run.read(first.home / "state") is None, "it has ended in order"
