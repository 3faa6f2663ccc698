"""When our engine servers end: at a signal, or with the process that started them."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable


def open_parent_pidfd() -> int:
    """Return a descriptor of the process that started this one; raises ProcessLookupError if it is already dead."""
    return os.pidfd_open(os.getppid())


def wait_for_shutdown(parent: int, begin: Callable[[], None] = lambda: None) -> None:
    """Call ``begin``, and return at SIGTERM or SIGINT, or when the process of :func:`open_parent_pidfd` has died.

    ``begin`` makes the server answer that it is ready. A signal may follow at once, so signals are handled before.
    """
    wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    begin()
    select.select([wake, parent], [], [])
