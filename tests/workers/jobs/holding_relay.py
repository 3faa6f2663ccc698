"""A relay in front of a sender that holds an answer after some bytes, so that a test can do something in the middle of it."""

from __future__ import annotations

import socket
import threading
from typing import Final, Self

_BLOCK: Final = 16_384
_DEADLINE_S: Final = 30.0


class HoldingRelay:
    """Forwards each connection to one address. The first answer of more than ``limit`` bytes is held there."""

    def __init__(self, address: str, limit: int) -> None:
        host, _, port = address.rpartition(":")
        self._upstream, self._limit = (host, int(port)), limit
        self.forwarded = 0
        """Bytes of all answers so far."""
        self.holding = threading.Event()
        """Set while an answer is held."""
        self.released = threading.Event()
        """Set by the test: what is held goes on."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(_DEADLINE_S)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with client:
            try:
                with socket.socket() as upstream:
                    # What the kernel keeps for us does not stop when the sender is killed.
                    upstream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * _BLOCK)
                    upstream.settimeout(_DEADLINE_S)
                    upstream.connect(self._upstream)
                    request = b""
                    while b"\r\n\r\n" not in request:
                        block = client.recv(_BLOCK)
                        if not block:
                            return
                        request += block
                    upstream.sendall(request)
                    self._answer(upstream, client)
            except OSError:
                return  # one of both was killed

    def _answer(self, upstream: socket.socket, client: socket.socket) -> None:
        sent = 0
        while block := upstream.recv(_BLOCK):
            client.sendall(block)
            sent += len(block)
            self.forwarded += len(block)
            if sent > self._limit and not self.released.is_set():
                self.holding.set()
                self.released.wait(_DEADLINE_S)
