"""The network of these tests does what it says, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.support import processes
from tests.support.network import relay
from tests.support.network.nodes import ROOT, Network, NetworkNode
from tests.support.waiting import wait_for

ECHO = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as echo:
    echo.bind((sys.argv[1], 7))
    print(flush=True)
    while True:
        echo.sendto(*echo.recvfrom(100))
"""


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(3) as network:
        yield network


@pytest.fixture
def echo(network: Network) -> Iterator[NetworkNode]:
    """A node that sends back what it gets."""
    node = network.nodes[1]
    command = node.command(sys.executable, "-c", ECHO, node.address)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield node
        process.kill()


def answered(node: NetworkNode, count: int, seconds: float) -> int:
    """Send some packets to the echo, and return how many come back in this time."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect((node.address, 7))
        for _ in range(count):
            client.send(b"x")
        came = 0
        end = time.monotonic() + seconds
        while came < count and (left := end - time.monotonic()) > 0:
            client.settimeout(left)
            try:
                came += len(client.recv(100))
            except TimeoutError:
                break
        return came


def test_packets_are_passed_delayed_and_lost(network: Network, echo: NetworkNode) -> None:
    assert answered(echo, 20, 10.0) == 20
    network.worsen(loss=0.5)
    assert 0 < answered(echo, 200, 2.0) < 150
    network.worsen(delay=0.1)
    began = time.monotonic()
    assert answered(echo, 1, 10.0) == 1
    assert time.monotonic() - began >= 0.2


def test_a_link_that_is_down_passes_nothing(network: Network, echo: NetworkNode) -> None:
    network.link(echo, up=False)
    assert answered(echo, 5, 0.5) == 0
    network.link(echo, up=True)
    assert answered(echo, 5, 10.0) == 5
    network.link(network.nodes[0], up=False)
    assert answered(echo, 5, 0.5) == 0


def test_a_node_knows_what_runs_there(network: Network, echo: NetworkNode) -> None:
    assert [each.mentions("echo") for each in echo.processes()] == [True]
    assert network.nodes[2].processes() == []


def test_nothing_is_left_when_the_test_is_killed(network: Network) -> None:
    code = (
        "import subprocess, sys, time\n"
        "from tests.support.network.nodes import Network\n"
        "with Network(2) as network:\n"
        "    there = subprocess.Popen(network.nodes[1].command('sleep', '600'))\n"
        "    here = subprocess.Popen(['sleep', '600'])\n"
        "    print(there.pid, here.pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE) as test:
        assert test.stdout is not None
        pids = [*map(int, test.stdout.readline().split())]
        spaces = {relay.namespace(pid) for pid in (pids[1], test.pid)}
        os.kill(test.pid, signal.SIGKILL)
    wait_for(lambda: not any(map(processes.alive, pids)), "what it started has ended")
    wait_for(lambda: not relay.inhabitants(spaces), "no process is in its network")
