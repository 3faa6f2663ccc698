"""What a process tree has used and whether one of its threads could run now, according to /proc."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.waiting import wait_for
from workers.engine.process_usage import proportional_of_tree, usage_of_tree, used_by_tree


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


@pytest.mark.parametrize("on_tmpfs", [False, True])
def test_memory_with_and_without_mapped_files(tmp_path: Path, on_tmpfs: bool) -> None:
    """The memory that a process and its child allocate counts, a mapped file only for one of the figures."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(dir="/dev/shm"))) if on_tmpfs else tmp_path
        check_memory_beside_a_mapped_file(folder / "mapped")


def check_memory_beside_a_mapped_file(file: Path) -> None:
    file.write_bytes(b"x" * (60 << 20))
    child = "import sys; data = bytearray(b'x' * (30 << 20)); print('ready', flush=True); sys.stdin.read()"
    parent = (
        "import mmap, subprocess, sys\n"
        f"with open({str(file)!r}, 'rb') as file: data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\n"
        "assert sum(data[::4096]) > 0\n"
        f"sys.exit(subprocess.call([sys.executable, '-c', {child!r}]))"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        used, whole = used_by_tree(process.pid), proportional_of_tree(process.pid)
    assert 30 << 20 < used < 90 << 20, "an interpreter has at most 30 MiB of its own"
    assert whole - used > 59 << 20
    assert used_by_tree(process.pid) == proportional_of_tree(process.pid) == 0
