"""A supervisor's transition: it takes over from an earlier supervisor, or hands over to a later one.

While it lasts, nothing is decided and nothing is granted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Transition(Protocol):
    """Gets all messages and ends of workers instead of the supervisor's handlers.

    :class:`supervisor.recovery.recovering.Recovery` takes over, :mod:`supervisor.lifecycle.succession` hands over.
    """

    def received(self, peer: str, message: Any, payload: bytes) -> None:
        """Take a message."""

    def worker_ended(self, worker: str) -> None:
        """Note that a worker's process has ended."""

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call back when everything is taken over; never, if this supervisor hands over."""
