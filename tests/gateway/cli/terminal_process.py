"""A command in a process with a pseudo-terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Self

DEFAULT_SIGNALS = ("env", "--default-signal=INT")
"""Before a command that is to heed Ctrl-C: a shell that runs the tests in the background has them ignore it, and processes inherit that."""
_WITH_TERMINAL = 'exec 0<>"$0" 1>&0 2>&0; exec "$@"'
"""The first terminal that a session's leader opens controls it: Ctrl-C is then a signal."""
LAUNCH = Path(__file__).resolve().parents[3] / "deploy" / "launch"


class TerminalProcess:
    """A command with a pseudo-terminal that controls it, into which the test types."""

    def __init__(self, *arguments: str, columns: int = 0, lines: int = 0) -> None:
        """``columns``, ``lines``: the terminal's size; 0: it does not know it."""
        self._arguments = arguments
        self._size = columns, lines
        self._seen = ""

    def __enter__(self) -> Self:
        self._fd, theirs = pty.openpty()
        self.resize(*self._size)
        self._process = subprocess.Popen(
            [
                *DEFAULT_SIGNALS,
                "sh",
                "-c",
                _WITH_TERMINAL,
                os.ttyname(theirs),
                sys.executable,
                LAUNCH,
                *self._arguments,
            ],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", "INPUTRC": "/dev/null"},
        )
        os.close(theirs)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(10)
        os.close(self._fd)

    def resize(self, columns: int, lines: int) -> None:
        """Change the terminal's size, which the command is told by a signal."""
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def until(self, text: str, seconds: float = 20) -> str:
        """Return the output up to ``text``, and drop it."""
        deadline = time.monotonic() + seconds
        while text not in self._seen:
            ready = select.select([self._fd], [], [], max(0, deadline - time.monotonic()))[0]
            assert ready, f"waited for {text!r}, saw {self._seen!r}"
            try:
                self._seen += os.read(self._fd, 65536).decode("utf-8", "replace")
            except OSError:
                assert text in self._seen, f"ended before {text!r}, after {self._seen!r}"
        before, _, self._seen = self._seen.partition(text)
        return before

    def ends(self) -> int:
        return self._process.wait(20)
