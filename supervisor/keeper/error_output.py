"""Lines on stderr of the keeper and of a supervisor that cannot start: there is no log to take them."""

from __future__ import annotations

import contextlib
import os
import select


def print_line(line: str) -> None:
    """Print one line on stderr, if it can be written to."""
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    with contextlib.suppress(OSError):  # the terminal or the reader of the pipe may be gone
        if poll.poll(0):  # a pipe that is full and not read would keep this process from its end
            os.write(2, f"lemonbus: {line}\n".encode())
