"""SIGHUP on a terminal: a signal that was sent is ignored, but a closed terminal ends the server."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHILD = """
import fcntl, os, signal, sys, termios
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.runtime.hangup import HangupHandler
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
logs.configure("supervisor", "info", "json")
logs.set_sink(lambda record: os.write(int(sys.argv[1]), b"ignored\\n" if b"SIGHUP ignored" in record else b""))
loop = Loop()
def end():
    os.write(int(sys.argv[1]), b"end\\n")
    loop.stop()
loop.on_signal(signal.SIGHUP, HangupHandler(end).handle)
os.write(int(sys.argv[1]), b"ready\\n")
loop.run()
"""


def test_only_the_end_of_the_terminal_is_the_end() -> None:
    terminal, theirs = os.openpty()
    expected, value = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(value)],
        cwd=ROOT,
        stdin=theirs,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        pass_fds=[value],
    )
    os.close(theirs)
    os.close(value)
    try:
        assert word(expected) == b"ready\n"
        child.send_signal(signal.SIGHUP)
        assert word(expected) == b"ignored\n"
        os.close(terminal)
        assert word(expected) == b"end\n"
        assert child.wait(10) == 0
    finally:
        child.kill()
        child.wait()
        os.close(expected)


def word(descriptor: int) -> bytes:
    assert select.select([descriptor], [], [], 10)[0], "it says something"
    return os.read(descriptor, 100)
