"""Whether a thread of a process tree could run now, according to /proc."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.waiting import wait_for
from workers.engine.process_usage import usage_of_tree


@pytest.fixture
def spinning() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        yield process.pid
        process.kill()


def test_a_process_that_computes_is_runnable_until_it_is_stopped(spinning: int) -> None:
    wait_for(lambda: usage_of_tree(spinning).cpu_seconds > 0.05, "it computes")
    wait_for(lambda: usage_of_tree(spinning).runnable, "it could run")
    os.kill(spinning, signal.SIGSTOP)
    wait_for(lambda: not usage_of_tree(spinning).runnable, "it is stopped")


def test_a_process_that_waits_and_one_that_has_ended_are_not_runnable() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as waiting:
        wait_for(lambda: not usage_of_tree(waiting.pid).runnable, "it waits for input")
    assert not usage_of_tree(waiting.pid).runnable
