"""An engine dies with the process that started it, with and without setpriv."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import wait_for
from workers.engine.parent_death import bound_to_this_process, find_setpriv

ROOT = Path(__file__).resolve().parents[3]
STARTER = """
import subprocess, sys, time
from workers.engine.parent_death import bound_to_this_process
child = subprocess.Popen(bound_to_this_process(["sleep", "600"], sys.argv[1] or None))
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("setpriv", [find_setpriv() or "", ""], ids=["with setpriv", "without setpriv"])
def test_a_child_dies_with_its_parent(setpriv: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", STARTER, setpriv], cwd=ROOT, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": ""}
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    descriptor = os.pidfd_open(child)
    try:
        wait_for(lambda: Path(f"/proc/{child}/comm").read_text() == "sleep\n", "it has become the program")
        parent.kill()
        assert select.select([descriptor], [], [], 10)[0], "the kernel ended it"
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
        os.close(descriptor)


def test_nothing_is_run_for_a_parent_that_is_dead_already() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    command = bound_to_this_process(["echo", "it runs"], None)
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"it runs\n"
    orphaned = [str(ended.pid) if part == str(os.getpid()) else part for part in command]
    done = subprocess.run(orphaned, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


def test_a_program_that_is_missing_is_named() -> None:
    done = subprocess.run(bound_to_this_process(["/no/engine"], None), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "/no/engine: No such file or directory\n")


def test_only_the_setpriv_of_util_linux_is_used(tmp_path: Path) -> None:
    assert find_setpriv(str(tmp_path)) is None
    busybox = tmp_path / "busybox"
    busybox.write_text("#!/bin/sh\n")
    busybox.chmod(0o755)
    (tmp_path / "setpriv").symlink_to(busybox)
    assert find_setpriv(str(tmp_path)) is None
    (tmp_path / "setpriv").unlink()
    shutil.copy(busybox, tmp_path / "setpriv")
    assert find_setpriv(str(tmp_path)) == str(tmp_path / "setpriv")
