"""A keeper that runs as a process of its own, with supervisors that stand in for the real one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.support import processes
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[3]


class KeeperProcess:
    """Use it as a context manager: leaving it kills the remaining processes."""

    def __init__(
        self,
        *behaviours: str,
        environment: dict[str, str] | None = None,
        within: Sequence[str] = (),
        terminal: int = subprocess.DEVNULL,
        **limits: float,
    ) -> None:
        """Start it; ``behaviours``: see ``stand_in.py``; ``within``: a command that starts it, or becomes it.

        ``terminal``: its standard input; it has a session of its own. ``limits``: those of ``run_keeper.py`` that the
        test is about, in seconds.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="lb-keeper-")
        self._behaviours = Path(self._folder.name) / "behaviours"
        self.install(*behaviours)
        self.lines: list[str] = []
        """The output of the stand-ins and of the keeper itself."""
        script = Path(__file__).with_name("run_keeper.py")
        self._process = subprocess.Popen(
            [
                *within,
                sys.executable,
                "-S",
                str(script),
                str(self._behaviours),
                *(f"{name}={limit}" for name, limit in limits.items()),
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
            stdin=terminal,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def install(self, *behaviours: str) -> None:
        """Set the behaviour of the next fork server's supervisors, as if another version had been installed."""
        self._behaviours.write_text(" ".join(behaviours))

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self.lines.append(line.rstrip())

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait_line(self, start: str, count: int = 1) -> str:
        """Wait for the ``count``-th line that begins with this text; return the rest of it."""

        def found() -> list[str]:
            return [line.removeprefix(start).strip() for line in self.lines if line.startswith(start)][count - 1 :]

        return wait_for(found, f"{start!r} is told, {count} times; so far: {self.lines}")[0]

    def wait_started(self, number: int) -> int:
        """Wait for a supervisor; return its pid."""
        return int(self.wait_line(f"started {number} ").split()[0])

    def wait_exit(self, deadline: float = 15.0) -> int:
        """Wait for the keeper's end, and read all that was told; return its exit code."""
        code = self._process.wait(deadline)
        self._reader.join(deadline)
        return code

    def left(self) -> list[int]:
        """Return the pids of its stand-ins that live, and of their children."""
        return [each.pid for each in processes.with_word(str(self._behaviours)) if each.pid != self.pid]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for each in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self._reader.join()
        assert self._process.stdout
        self._process.stdout.close()
        self._folder.cleanup()
