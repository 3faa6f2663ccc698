"""SIGHUP: the end if our terminal was closed; otherwise a request to reload, which there is not yet."""

from __future__ import annotations

import os
from collections.abc import Callable

from protocol.runtime import logs

log = logs.get_logger()


class HangupHandler:
    """What the supervisor does at SIGHUP. To be made at the start, while the terminal is still there."""

    def __init__(self, shutdown: Callable[[], None]) -> None:
        """``shutdown`` begins the orderly end."""
        self._shutdown = shutdown
        self._had_terminal = _has_terminal()

    def handle(self) -> None:
        """End if the terminal is gone; else say that nothing is reloaded, and go on."""
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
