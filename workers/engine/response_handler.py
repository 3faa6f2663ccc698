"""What a connection reports about a response, and a handler that collects a short response whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

OnResponse = Callable[[int, bytes], None]


class ResponseHandler(Protocol):
    """Receives one response. One of the last four methods ends it; nothing is called after that."""

    def began(self, status: int) -> None:
        """Take the status; the headers are complete."""

    def data(self, piece: bytes) -> None:
        """Take a part of the body."""

    def ended(self, until_close: bool = False) -> None:
        """Note that the response is complete.

        ``until_close``: it had no length and no chunks, so the end of the connection ended it (legal HTTP). HTTP then
        does not show whether it was cut off.
        """

    def broke(self, reason: str) -> None:
        """Take note that the connection ended before the response did."""

    def malformed(self, reason: str) -> None:
        """Take note that the engine sent something that is not HTTP."""

    def crashed(self, error: BaseException) -> None:
        """Take note that this handler raised ``error``: a programming error of ours."""


class BufferedResponse:
    """A :class:`ResponseHandler` that collects a whole response and passes on its status and body; status 0 if it did not arrive."""

    def __init__(self, then: OnResponse) -> None:
        """Call ``then`` once."""
        self._then = then
        self._status = 0
        self._parts: list[bytes] = []

    def began(self, status: int) -> None:
        """Take the status."""
        self._status = status

    def data(self, piece: bytes) -> None:
        """Take a part of the body."""
        self._parts.append(piece)

    def ended(self, until_close: bool = False) -> None:  # noqa: ARG002 - the reader of the body sees whether it is whole
        """Pass on the response."""
        self._then(self._status, b"".join(self._parts))

    def broke(self, reason: str) -> None:
        """Report that no response arrived."""
        self._then(0, reason.encode())

    def malformed(self, reason: str) -> None:
        """Report that no response arrived."""
        self._then(0, reason.encode())

    def crashed(self, error: BaseException) -> None:
        """Leave the error to the loop, which logs it."""
        raise error
