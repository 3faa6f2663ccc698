"""Processes that an earlier server left in our runtime directory are killed, and no others."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from protocol.runtime.process_context import ProcessContext
from supervisor.processes.abandoned_processes import kill_abandoned
from tests.support import processes
from tests.support.waiting import wait_for


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def child(stack: ExitStack, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(["sleep", "600"], env={**os.environ, **environment})
    stack.callback(process.wait)
    stack.callback(process.kill)
    assert processes.environment(process.pid).items() >= environment.items()
    return process


def test_only_what_an_earlier_server_started_here_is_killed(tmp_path: Path, stack: ExitStack) -> None:
    context = ProcessContext(tmp_path, "now", os.getpid())
    earlier = child(stack, ProcessContext(tmp_path, "earlier", 1).environment())
    others = [
        child(stack, context.environment()),
        child(stack, ProcessContext(tmp_path / "other", "earlier", 1).environment()),
        child(stack, {}),
    ]
    kill_abandoned(context)
    wait_for(lambda: earlier.poll() is not None, "the earlier server's process is dead")
    assert [process.poll() for process in others] == [None] * 3
