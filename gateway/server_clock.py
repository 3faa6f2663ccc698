"""The head's time of day. Clients are shown it, and keys expire by it, also on a machine whose own clock is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

_NS_PER_S: Final = 1_000_000_000


class ServerClock:
    """The clock of this machine and, on a node other than the head, its difference from the head's clock."""

    def __init__(self) -> None:
        """This is the head."""
        self.seconds: Callable[[], float] = time.time
        """Returns Unix seconds."""
        self.nanoseconds: Callable[[], int] = time.time_ns
        """Returns the nanoseconds since the Unix epoch."""

    def set(self, now: float) -> None:
        """Take note of what the clock of the head shows, in Unix seconds. The way from there takes some milliseconds."""
        shift = now - time.time()
        shift_ns = round(shift * _NS_PER_S)
        self.seconds = lambda: time.time() + shift
        self.nanoseconds = lambda: time.time_ns() + shift_ns

    def date(self) -> datetime:
        """Return the date and time in UTC."""
        return datetime.fromtimestamp(self.seconds(), UTC)


SERVER_CLOCK: Final = ServerClock()
"""Of this process."""
