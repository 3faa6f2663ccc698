"""A line on a stderr that is full and not read, as of a pipe whose reader is stopped: the process goes on without it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "code",
    [
        "from supervisor.keeper.error_output import print_line; print_line('unread')",
        "from supervisor.lifecycle.startup import print_line; raise SystemExit(print_line('unread', 0))",
    ],
)
def test_a_full_pipe_delays_nothing(code: str) -> None:
    reading, writing = os.pipe()
    try:
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, bytes(1024))
        os.set_blocking(writing, True)
        assert subprocess.run([sys.executable, "-c", code], stderr=writing, timeout=60, check=False).returncode == 0
    finally:
        os.close(reading)
        os.close(writing)
