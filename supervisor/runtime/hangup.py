"""SIGHUP: shut down if our terminal was closed; otherwise it asks for a reload, which does not exist yet."""

from __future__ import annotations

import os
from collections.abc import Callable

from protocol.runtime import logs

log = logs.get_logger()


class HangupHandler:
    """Handles SIGHUP. To be made at the start, while the terminal still exists."""

    def __init__(self, shutdown: Callable[[], None]) -> None:
        """``shutdown`` begins the orderly shutdown."""
        self._shutdown = shutdown
        self._had_terminal = _has_terminal()

    def handle(self) -> None:
        """Shut down if the terminal is closed; otherwise warn that nothing is reloaded."""
        if self._had_terminal and not _has_terminal():
            self._shutdown()
        else:
            log.warning("SIGHUP ignored", reason="settings are read at the start alone: restart for new ones")


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
