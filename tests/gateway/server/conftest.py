"""A listener of the test, and what serves its connections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gevent
import gevent.socket
import pytest

from gateway.server.acceptor import Acceptor

DEADLINE = 5.0


class Serving:
    """Serves a connection until its client hangs up, and remembers."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.ended = 0
        self.greenlets: set[int] = set()

    def __call__(self, sock: Any, address: Any) -> None:
        self.begun.append(address)
        self.greenlets.add(id(gevent.getcurrent()))
        try:
            if sock.recv(10) == b"fail":
                raise ValueError("failed")
        finally:
            sock.close()
            self.ended += 1


@pytest.fixture
def listener() -> Iterator[Any]:
    sock = gevent.socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen(64)
    yield sock
    sock.close()


@contextmanager
def accepting(acceptor: Acceptor) -> Iterator[None]:
    acceptor.start()
    try:
        yield
    finally:
        acceptor.close()
        acceptor.kill()
        until(lambda: not len(acceptor))


def until(happened: Any) -> None:
    with gevent.Timeout(DEADLINE):
        while not happened():
            gevent.sleep(0.001)


def client(listener: Any) -> Any:
    return gevent.socket.create_connection(listener.getsockname())
