"""What a forked process does before it is like one that was started by itself."""

from __future__ import annotations

import subprocess
import sys

HUNG_UP = """
import os, signal
from supervisor.lifecycle import forked_process

change = signal.signal

def hang_up_at_once(number, handler):
    change(number, handler)
    if number == signal.SIGHUP:
        os.kill(os.getpid(), signal.SIGHUP)

signal.signal(signal.SIGHUP, lambda *_: None)
signal.signal = hang_up_at_once
if os.fork() == 0:
    forked_process._be_a_process_of_its_own(2, "workers", {})
    os._exit(3)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_hangup_of_the_whole_group_does_not_end_a_process_that_is_just_forked() -> None:
    ended = subprocess.run([sys.executable, "-c", HUNG_UP], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.split() == ["3"]
