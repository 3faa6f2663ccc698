"""A link to a supervisor that a test can cut, or that is slow: two ports that pass bytes on to two others."""

from __future__ import annotations

import contextlib
import math
import selectors
import socket
import threading
from typing import Final, Self

from tests.support.ports import free_port_pair

_READ: Final = 65_536
_LOOK_S: Final = 0.05


class TcpLink:
    """A context manager. Its thread ends with it."""

    def __init__(self, address: str, rate: float = math.inf) -> None:
        """Pass bytes on to ``HOST:PORT`` and the port after it. ``rate``: bytes per second, all connections and directions together."""
        self._rate = rate
        host, _, port = address.rpartition(":")
        self._target, own = (host, int(port)), free_port_pair()
        self.address = f"127.0.0.1:{own}"
        self._up, self._held, self._over = True, False, threading.Event()
        self._selector = selectors.DefaultSelector()
        self._listeners = [socket.create_server(("127.0.0.1", own + number)) for number in range(2)]
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._lock = threading.Lock()
        for number, listener in enumerate(self._listeners):
            self._selector.register(listener, selectors.EVENT_READ, number)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Break all connections, and break each new one at once."""
        with self._lock:
            self._up = False
            for each in list(self._pairs):
                self._end(each)

    def hold(self) -> None:
        """Pass nothing on for now: neither side notices anything but silence, as when packets are lost on their way."""
        self._held = True

    def heal(self) -> None:
        """Pass bytes on again, those that were held first."""
        with self._lock:
            self._up, self._held = True, False

    def _run(self) -> None:
        while not self._over.is_set():
            if self._held:
                self._over.wait(_LOOK_S)
                continue
            for key, _ in self._selector.select(_LOOK_S):
                with self._lock:
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    if source in self._listeners:
                        self._accept(source, key.data)
                    elif source in self._pairs:
                        self._pass_on(source)

    def _accept(self, listener: socket.socket, number: int) -> None:
        near, _ = listener.accept()
        if not self._up:
            near.close()
            return
        try:
            far = socket.create_connection((self._target[0], self._target[1] + number), 5.0)
        except OSError:
            near.close()
            return
        self._pairs |= {near: far, far: near}
        for each in (near, far):
            self._selector.register(each, selectors.EVENT_READ)

    def _pass_on(self, source: socket.socket) -> None:
        try:
            data = source.recv(_READ)
            if data:
                self._over.wait(len(data) / self._rate)
                self._pairs[source].sendall(data)
                return
        except OSError:
            pass
        self._end(source)

    def _end(self, one: socket.socket) -> None:
        other = self._pairs.pop(one, None)
        for each in (one, *([other] if other is not None else [])):
            self._pairs.pop(each, None)
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(each)
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.cut()
        self._selector.close()
        for listener in self._listeners:
            listener.close()
