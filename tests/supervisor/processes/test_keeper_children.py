"""Processes that outlived their supervisor: which are found, and how a supervisor handles an adopted process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from supervisor.keeper import process_tree
from supervisor.processes import keeper_children
from supervisor.processes.child_processes import REPORT_TIMEOUT_S, ChildProcesses
from supervisor.processes.keeper_children import KeeperChild
from tests.support import processes
from tests.support.waiting import wait_for

BOOT = "0123456789ab"
IDLE = "import time, os; open(os.environ['UP'], 'w').close(); time.sleep(60)"
WITH_CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def context(tmp_path: Path) -> ProcessContext:
    """This process is the keeper: what it has started counts as started by a supervisor that is gone."""
    return ProcessContext(tmp_path, BOOT, os.getpid())


@pytest.fixture
def start(context: ProcessContext, tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:
        number = iter(range(100))

        def started(program: str = IDLE, *, session: bool = True, **variables: str) -> subprocess.Popen[bytes]:
            up = tmp_path / f"up{next(number)}"
            child = subprocess.Popen(
                [sys.executable, "-c", program, IDLE],
                env={**os.environ, **context.environment(), "UP": str(up), **variables},
                start_new_session=session,
            )
            stack.callback(child.wait)
            stack.callback(child.kill)
            wait_for(up.exists, "it runs")
            return child

        yield started


@pytest.fixture
def found(context: ProcessContext) -> Iterator[Callable[[], list[KeeperChild]]]:
    with ExitStack() as stack:

        def find() -> list[KeeperChild]:
            survivors = keeper_children.find_survivors(context)
            for each in survivors:
                stack.callback(each.close)
            return survivors

        yield find


def test_what_is_found_and_what_is_not(start: Start, found: Callable[[], list[KeeperChild]]) -> None:
    worker = start(LEMONBUS_ROLE="worker", LEMONBUS_PEER="w1")
    gateway = start(LEMONBUS_ROLE="gateway")
    start(LEMONBUS_ROLE="worker", LEMONBUS_PEER="w2", session=False)  # as an engine of a dead worker
    start(LEMONBUS_ROLE="worker", LEMONBUS_PEER="w3", LEMONBUS_BOOT="another")
    start()
    ended = start(LEMONBUS_ROLE="job", LEMONBUS_PEER="j1")
    ended.kill()
    wait_for(lambda: not processes.alive(ended.pid), "it has ended, and is not reaped")
    assert {(each.pid, each.role, each.peer) for each in found()} == {
        (worker.pid, "worker", "w1"),
        (gateway.pid, "gateway", ""),
    }


def test_a_grandchild_is_not_found(start: Start, found: Callable[[], list[KeeperChild]]) -> None:
    parent = start(WITH_CHILD, LEMONBUS_ROLE="worker", LEMONBUS_PEER="w1")
    assert [each.pid for each in found()] == [parent.pid]
    os.killpg(parent.pid, signal.SIGKILL)


class Adopter:
    """A supervisor's processes, with one that it adopted."""

    def __init__(self, context: ProcessContext) -> None:
        self.loop = Loop()
        self.children = ChildProcesses(self.loop, context)
        (self.survivor,) = keeper_children.find_survivors(context)
        self.ends: list[str] = []
        self.child = self.children.adopt(self.survivor, self.ends.append)

    def run_until_ended(self, seconds: float = 10.0) -> None:
        end = self.loop.now() + seconds
        while not self.ends and self.loop.now() < end:
            self.loop.run_once(0.05)


@pytest.fixture
def adopter(context: ProcessContext, start: Start) -> Iterator[Adopter]:
    start(WITH_CHILD, LEMONBUS_ROLE="worker", LEMONBUS_PEER="w1")
    made = Adopter(context)
    yield made
    made.children.kill_all()
    made.loop.close()


def test_the_keeper_says_how_an_adopted_process_ended(adopter: Adopter) -> None:
    pid = adopter.child.pid
    assert len(adopter.children) == 1
    adopter.children.keeper_reaped(pid + 1, 0)
    assert adopter.ends == []
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    adopter.children.keeper_reaped(pid, -signal.SIGSEGV)
    assert adopter.ends == ["SIGSEGV"]
    assert len(adopter.children) == 0
    adopter.children.keeper_reaped(pid, 0)
    adopter.loop.run_once(0.1)
    assert adopter.ends == ["SIGSEGV"], "once"


@pytest.mark.parametrize(("status", "expected"), [(0, "exit 0"), (3, "exit 3"), (-9, "SIGKILL"), (-40, "signal 40")])
def test_every_status_has_words(status: int, expected: str) -> None:
    assert process_tree.describe_status(status) == expected


def test_an_end_that_the_keeper_does_not_report_is_noticed(adopter: Adopter) -> None:
    adopter.children.kill(adopter.child)
    began = adopter.loop.now()
    adopter.run_until_ended()
    assert adopter.ends == ["how is not known"]
    assert adopter.loop.now() - began >= REPORT_TIMEOUT_S


def test_an_adopted_process_is_killed_with_its_group(adopter: Adopter) -> None:
    (engine,) = processes.children(adopter.child.pid)
    adopter.children.kill(adopter.child)
    wait_for(lambda: not processes.alive(engine.pid), "the rest of its group is dead")


def test_a_process_that_was_reaped_gets_no_signal(
    context: ProcessContext, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start(LEMONBUS_ROLE="worker", LEMONBUS_PEER="w1")
    adopter = Adopter(context)
    child.kill()
    child.wait()  # the keeper reaps it: the pid is free
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda *_: sent.append(1))
    monkeypatch.setattr(os, "killpg", lambda *_: sent.append(1))
    adopter.children.kill(adopter.child)
    adopter.children.terminate(adopter.child)
    assert sent == []
    adopter.children.keeper_reaped(child.pid, -signal.SIGKILL)
    adopter.loop.close()
