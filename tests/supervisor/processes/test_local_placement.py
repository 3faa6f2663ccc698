"""Processes on this machine are started, adopted, shown, killed and given up by name."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from supervisor.processes.keeper_children import KeeperChild
from supervisor.processes.local_placement import LocalPlacement
from tests.support import processes

DEADLINE = 10.0
MODULE = "workers.jobs.pull"


class PlacementHarness:
    def __init__(self, folder: Path) -> None:
        self.loop = Loop()
        self.placement = LocalPlacement(self.loop, ProcessContext(folder, "boot", os.getpid()))
        self.ends: list[str] = []

    def run_until(self, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not done():
            assert time.monotonic() < deadline
            self.loop.run_once(0.02)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[PlacementHarness]:
    made = PlacementHarness(tmp_path)
    yield made
    made.placement.processes.kill_all()
    made.run_until(lambda: len(made.placement.processes) == 0)
    made.loop.close()


def test_a_process_is_known_by_its_name_until_it_has_ended(harness: PlacementHarness) -> None:
    placement = harness.placement
    placement.start("j1", "job", MODULE, harness.ends.append)
    pid = placement.pid("j1")
    assert placement.resident_bytes("j1", pid) > 0
    assert processes.environment(pid).items() >= {"LEMONBUS_PEER": "j1", "LEMONBUS_ROLE": "job"}.items()
    placement.kill("j2")
    placement.give_up("j2")
    placement.kill("j1")
    harness.run_until(lambda: harness.ends)
    assert harness.ends == ["SIGKILL"]
    assert (placement.pid("j1"), placement.resident_bytes("j1", 0)) == (0, 0)
    placement.kill("j1")


def test_one_that_an_earlier_supervisor_started_is_adopted_by_its_name(harness: PlacementHarness) -> None:
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as process:
        found = KeeperChild(process.pid, "worker", "w1", os.pidfd_open(process.pid))
        (survivor,) = harness.placement.survivors([found])
        harness.placement.adopt(survivor, harness.ends.append)
        assert harness.placement.pid("w1") == process.pid
        harness.placement.give_up("w1")
        assert len(harness.placement.processes) == 0, "its end is not waited for"
        process.wait(DEADLINE)
        harness.run_until(lambda: harness.ends)
    assert harness.ends == ["how is not known"]


def test_the_servers_age_is_that_of_the_keeper(harness: PlacementHarness) -> None:
    before = harness.placement.server_age()
    assert 0 < before <= harness.placement.server_age()
