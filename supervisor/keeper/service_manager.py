"""Tells a service manager what the server does, with the protocol of ``sd_notify``; silent if there is none."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import MutableMapping


class ServiceManager:
    """The socket in ``NOTIFY_SOCKET``, and the watchdog that ``WATCHDOG_USEC`` asks for."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        """Take the variables out of the environment, because no child may speak in the keeper's name."""
        address = environment.pop("NOTIFY_SOCKET", "")
        # An abstract name begins with a zero byte, which no variable can hold.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._interval = _watchdog_interval(environment)
        self._fed = 0.0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if self._address else None

    def ready(self, status: str) -> None:
        """Say that the server answers clients, also after a reload."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Say that a reload has begun; :meth:`ready` ends it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """Say that the server ends."""
        self._send("STOPPING=1", "STATUS=running requests may end")

    def status(self, text: str) -> None:
        """Say in a few words what is going on."""
        self._send(f"STATUS={text}")

    def feed_watchdog(self, now: float) -> None:
        """Say that all is well, if a watchdog is requested and due."""
        if self._interval and now - self._fed >= self._interval:
            self._fed = now
            self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):  # a manager that does not read must not block the server
                self._socket.sendto("\n".join(lines).encode(), socket.MSG_DONTWAIT, self._address)


def _watchdog_interval(environment: MutableMapping[str, str]) -> float:
    """Return the seconds between two signs of life, well below the manager's timeout; 0 if it has none."""
    microseconds = environment.pop("WATCHDOG_USEC", "")
    pid = environment.pop("WATCHDOG_PID", "") or str(os.getpid())
    if not microseconds.isdigit() or pid != str(os.getpid()):
        return 0.0
    return int(microseconds) / 1e6 / 3
