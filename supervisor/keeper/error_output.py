"""Lines on stderr, for the keeper and for a supervisor that cannot start: they have no log."""

from __future__ import annotations

import contextlib
import os
import select

from protocol.runtime.journal_priorities import PRIORITIES, stderr_is_journal


def print_line(line: str) -> None:
    """Print one line on stderr, if it can be written to."""
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    with contextlib.suppress(OSError):  # the terminal or the reader of the pipe may be gone
        if poll.poll(0):  # a full pipe without a reader would keep this process from ending
            priority = PRIORITIES["error"] if stderr_is_journal() else b""
            os.write(2, priority + f"lemonbus: {line}\n".encode())
