"""An engine dies with the process that started it, with and without setpriv."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

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
HELD: Final = """
import os, signal, subprocess, sys
from workers.engine.parent_death import bound_to_this_process
def hold():
    os.write(1, b"%d\\n" % os.getpid())
    os.kill(os.getpid(), signal.SIGSTOP)
subprocess.Popen(bound_to_this_process(["echo", "it runs"], sys.argv[1] or None), preexec_fn=hold)
"""


SETPRIVS: Final = (find_setpriv() or "", "")
IDS: Final = ("with setpriv", "without setpriv")


@pytest.mark.parametrize("setpriv", SETPRIVS, ids=IDS)
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


@pytest.mark.parametrize("setpriv", SETPRIVS, ids=IDS)
def test_nothing_is_run_for_a_parent_that_died_before_the_kernel_was_asked(setpriv: str) -> None:
    """The child has been forked, and has not executed anything yet, when its parent is killed."""
    parent = subprocess.Popen([sys.executable, "-c", HELD, setpriv], cwd=ROOT, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    descriptor = os.pidfd_open(child)
    try:
        wait_for(lambda: Path(f"/proc/{child}/stat").read_text().split()[2] == "T", "it is stopped after the fork")
        parent.kill()
        parent.wait()
        os.kill(child, signal.SIGCONT)
        assert parent.stdout.read() == b"", "it became the program"
        assert select.select([descriptor], [], [], 10)[0], "it has ended"
    finally:
        parent.kill()
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        parent.wait()
        parent.stdout.close()
        os.close(descriptor)


@pytest.mark.parametrize("setpriv", SETPRIVS, ids=IDS)
def test_a_program_gets_its_arguments_as_they_are(setpriv: str) -> None:
    words = ["printf", "%s,", "a b", "", "$HOME", "'\"", "*"]
    done = subprocess.run(bound_to_this_process(words, setpriv or None), capture_output=True, check=True)
    assert done.stdout == b"a b,,$HOME,'\",*,"


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
