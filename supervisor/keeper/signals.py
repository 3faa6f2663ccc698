"""The signals of the keeper, as bytes in a pipe that its loop reads."""

from __future__ import annotations

import contextlib
import os
import signal

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)
"""SIGUSR1 changes nothing: it lets other servers open their log again, so tools send it. Unhandled, it would end the server."""


class Signals:
    """The pipe. To be made once, in the main thread."""

    def __init__(self) -> None:
        """Catch the signals from now on. An ignored SIGHUP (``nohup``) stays ignored."""
        self._had_terminal = _has_terminal()
        self._read_fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for number in HANDLED:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda *_: None)

    def fileno(self) -> int:
        """Return the descriptor, to wait on."""
        return self._read_fd

    def arrived(self) -> list[int]:
        """Return the signals that have arrived since the last call."""
        with contextlib.suppress(BlockingIOError):
            return list(os.read(self._read_fd, 512))
        return []

    def terminal_was_closed(self) -> bool:
        """Return whether a SIGHUP means that the terminal is gone, not that a reload is requested."""
        return self._had_terminal and not _has_terminal()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
