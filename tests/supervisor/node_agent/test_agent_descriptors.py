"""The limit of open files on a node, where an agent starts with a small one."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.runtime.descriptors import MAX_DESCRIPTORS
from protocol.wire import curve
from protocol.wire.bus_address import ClusterMembership
from tests.conftest import SMALL_LIMIT
from tests.support.node_agents import NodeUnderTest
from tests.support.ports import free_port_pair
from tests.support.waiting import wait_for


@pytest.fixture
def node() -> Iterator[NodeUnderTest]:
    """A node without a head, whose agent has inherited a small limit."""
    membership = ClusterMembership(f"127.0.0.1:{free_port_pair()}", curve.new_cluster_keys().of_member())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (SMALL_LIMIT, hard))
    try:
        made = NodeUnderTest("gpu2", membership, "b00t")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with made:
        yield made


def test_processes_of_a_node_may_open_as_many_files_as_those_of_the_head(node: NodeUnderTest) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(MAX_DESCRIPTORS, hard)
    wait_for(
        lambda: resource.prlimit(node.pid, resource.RLIMIT_NOFILE)[0] == wanted,
        "the agent, from which its processes inherit, has raised its limit",
    )
    wait_for(lambda: handles_termination(node.pid), "the agent can be told to end in order")


def handles_termination(pid: int) -> bool:
    """Return whether a process has a handler of SIGTERM. One that still starts is ended by that signal."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(line.split()[1] for line in lines if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)
