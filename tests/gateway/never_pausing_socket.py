"""A stand-in for a client's socket, for tests of a connection without a network."""

from __future__ import annotations

from typing import Any


class NeverPausingSocket:
    """A client that has sent everything before the server reads, and whose socket always takes more."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)
        self.answers: list[bytes] = []

    def expect_request(self, seconds: float, idle: dict[Any, None]) -> None:
        pass

    def request_arrived(self) -> None:
        pass

    def set_read_deadline(self, deadline: float | None) -> None:
        pass

    def recv(self, _size: int, **_: bool) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""

    def sendall(self, data: bytes) -> None:
        self.answers.append(data)

    def shutdown(self, _how: int) -> None:
        pass

    def close(self) -> None:
        pass
