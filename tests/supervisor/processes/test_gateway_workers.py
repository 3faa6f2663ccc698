"""Gateways that a master has forked: known by their pids until they say Hello, then by their ids."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from protocol.messages.peers import Hello
from protocol.runtime.loop import Loop
from supervisor.processes.gateway_workers import GatewayWorkers
from tests.support import processes

DEADLINE = 10.0


class MasterAndGateway(NamedTuple):
    """A master and the one process that it has forked."""

    master: int
    gateway: int

    @property
    def hello(self) -> Hello:
        return Hello("gateway", "g1", self.gateway, "boot")


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


@pytest.fixture
def forked() -> Iterator[MasterAndGateway]:
    command = ["sh", "-c", "sleep 600 & echo $!; wait; sleep 600"]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE) as master:
        assert master.stdout is not None
        yield MasterAndGateway(master.pid, int(master.stdout.readline()))
        os.killpg(master.pid, signal.SIGKILL)


def run_until(loop: Loop, done: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not done():
        assert time.monotonic() < deadline
        loop.run_once(0.02)


def test_its_end_is_reported_once_under_its_last_name(loop: Loop, forked: MasterAndGateway) -> None:
    gateways = GatewayWorkers(loop)
    ended: list[tuple[str, int]] = []

    def on_ended(name: str) -> None:
        ended.append((name, gateways.pid(name)))

    unreported = f"gateway {forked.gateway}"
    assert gateways.find(forked.master, on_ended) == [unreported]
    assert gateways.joined(forked.hello, on_ended) == unreported
    assert gateways.joined(forked.hello, on_ended) == "g1", "it begins another connection"
    gateways.kill(unreported)
    gateways.kill("g2")
    assert processes.alive(forked.gateway), "no gateway has these names"
    gateways.kill("g1")
    run_until(loop, lambda: ended)
    loop.run_once(0.0)
    assert ended == [("g1", forked.gateway)], "its pid is known until then"
    assert gateways.pid("g1") == 0


def test_one_that_was_not_found_is_watched_from_its_hello(loop: Loop, forked: MasterAndGateway) -> None:
    gateways = GatewayWorkers(loop)
    ended: list[str] = []
    gateways.joined(forked.hello, ended.append)
    os.kill(forked.gateway, signal.SIGKILL)
    run_until(loop, lambda: ended)
    assert ended == ["g1"]


def test_one_that_has_not_said_hello_is_killed_by_the_name_that_it_was_given(
    loop: Loop, forked: MasterAndGateway
) -> None:
    gateways = GatewayWorkers(loop)
    ended: list[str] = []
    (name,) = gateways.find(forked.master, ended.append)
    gateways.kill(name)
    run_until(loop, lambda: ended)
    assert ended == [name]
