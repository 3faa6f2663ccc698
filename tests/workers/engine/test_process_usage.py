"""What a process tree has used and whether one of its threads could run now, according to /proc."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryDirectory

import pytest

from tests.support.waiting import wait_for
from workers.engine.process_usage import proportional_of_tree, usage_of_tree, used_by_tree

MIB = 1 << 20
FILE_BYTES = 20 * MIB
"""A small part of a container's tmpfs, which often has only 64 MiB."""


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


class Steps:
    """A process that runs a line of Python when it is told to."""

    def __init__(self, stack: ExitStack) -> None:
        program = "import mmap, subprocess, sys\nfor line in sys.stdin: exec(line); print(flush=True)"
        command = [sys.executable, "-c", program]
        self._process = stack.enter_context(subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True))
        self.pid = self._process.pid

    def run(self, line: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(line, file=self._process.stdin, flush=True)
        assert self._process.stdout.readline() == "\n"

    def read_file(self, path: Path, size: int) -> None:
        """Map a file for reading, and read the pages of its first ``size`` bytes."""
        self.run(f"file = open({str(path)!r}, 'rb'); data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)")
        self.run(f"assert sum(data[:{size}:4096]) >= 0")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.fixture
def on_tmpfs(stack: ExitStack) -> Path:
    return Path(stack.enter_context(TemporaryDirectory(dir="/dev/shm")))


@pytest.fixture
def steps(stack: ExitStack) -> Steps:
    made = Steps(stack)
    made.run("")
    return made


def test_what_a_process_and_its_child_allocate_counts(steps: Steps) -> None:
    before = used_by_tree(steps.pid), proportional_of_tree(steps.pid)
    child = "import sys; data = bytearray(b'x' * (30 << 20)); print(flush=True); sys.stdin.read()"
    steps.run(
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)"
    )
    steps.run("child.stdout.readline()")
    assert used_by_tree(steps.pid) - before[0] > 30 * MIB
    assert proportional_of_tree(steps.pid) - before[1] > 30 * MIB
    steps.run("child.communicate()")


@pytest.mark.parametrize("folder", ["tmp_path", "on_tmpfs"])
def test_a_mapped_file_counts_only_for_one_of_the_figures(
    request: pytest.FixtureRequest, steps: Steps, folder: str
) -> None:
    file: Path = request.getfixturevalue(folder) / "mapped"
    file.write_bytes(b"x" * FILE_BYTES)
    used, whole = used_by_tree(steps.pid), proportional_of_tree(steps.pid)
    steps.read_file(file, FILE_BYTES)
    assert used_by_tree(steps.pid) - used < 2 * MIB
    assert proportional_of_tree(steps.pid) - whole > FILE_BYTES - MIB


@pytest.mark.parametrize("read", [1, FILE_BYTES], ids=["a_page_is_read", "all_is_read"])
def test_shared_memory_counts_beside_a_file_on_a_tmpfs(on_tmpfs: Path, steps: Steps, read: int) -> None:
    file = on_tmpfs / "mapped"
    file.touch()
    os.truncate(file, FILE_BYTES)
    before = used_by_tree(steps.pid)
    steps.run("shared = mmap.mmap(-1, 10 << 20); shared.write(b'x' * (10 << 20))")
    steps.read_file(file, read)
    assert 9 * MIB < used_by_tree(steps.pid) - before < 12 * MIB


def test_a_process_that_has_ended_uses_nothing() -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    assert used_by_tree(process.pid) == proportional_of_tree(process.pid) == 0
