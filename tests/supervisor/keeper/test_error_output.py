"""A line on a full stderr that is not read, such as a pipe whose reader is stopped: the process continues without it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile

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


def test_a_line_to_the_journal_has_the_priority_of_an_error() -> None:
    with tempfile.TemporaryFile() as stream:
        status = os.fstat(stream.fileno())
        code = "from supervisor.keeper.error_output import print_line; print_line('lost')"
        journal = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        subprocess.run(
            [sys.executable, "-c", code], stderr=stream, env={**os.environ, **journal}, timeout=60, check=True
        )
        stream.seek(0)
        assert stream.read() == b"<3>lemonbus: lost\n"
