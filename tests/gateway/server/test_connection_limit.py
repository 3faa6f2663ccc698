"""What happens at the limit of connections, and when the system has no file left for another one."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import gevent
import gevent.socket
import pytest

from gateway.server import acceptor as acceptors
from gateway.server.acceptor import Acceptor
from protocol.runtime import logs
from tests.gateway.server.conftest import Serving, accepting, client, until


def test_no_more_connections_than_the_limit(listener: Any) -> None:
    serving = Serving()
    clients = [client(listener) for _ in range(5)]
    acceptor = Acceptor(listener, serving, 2)
    with accepting(acceptor):
        until(lambda: len(serving.begun) == 2)
        gevent.sleep(0.01)
        for count, each in enumerate(clients, 1):
            assert len(serving.begun) == len(acceptor) + count - 1 <= count + 1
            each.close()
            until(lambda count=count: serving.ended == count and len(acceptor) == min(2, 5 - count))
    assert len(serving.begun) == 5


def test_the_oldest_idle_connection_gives_way_to_a_new_one(listener: Any) -> None:
    serving = Serving()
    idle: list[Any] = []

    def serve(sock: Any, address: Any) -> None:
        idle.append(sock)
        serving(sock, address)

    def end_idle() -> bool:
        if not idle:
            return False
        idle.pop(0).cut()
        return True

    with accepting(Acceptor(listener, serve, 2, end_idle=end_idle)):
        clients = [client(listener) for _ in range(5)]
        until(lambda: len(serving.begun) == 5)
        until(lambda: serving.ended == 3)
        assert [one.recv(1) for one in clients[:3]] == [b""] * 3
        for one in clients:
            one.close()


def test_a_connection_that_becomes_idle_gives_way_when_all_were_busy(
    listener: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptors, "PAUSE_S", 0.01)
    serving = Serving()
    may_end: list[Any] = []
    sockets: list[Any] = []

    def serve(sock: Any, address: Any) -> None:
        sockets.append(sock)
        serving(sock, address)

    def end_idle() -> bool:
        return bool(may_end) and may_end.pop()()

    def cut_first() -> bool:
        sockets[0].cut()
        return True

    with accepting(Acceptor(listener, serve, 1, end_idle=end_idle)), client(listener), client(listener):
        until(lambda: len(serving.begun) == 1)
        may_end.append(cut_first)
        until(lambda: len(serving.begun) == 2)


class Refusing:
    """A listener for which the system has no file left, for some time."""

    def __init__(self, listener: Any, times: int = 1) -> None:
        self._listener = listener
        self.times = times
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listener, name)

    def _accept(self) -> Any:
        if self.refused < self.times:
            self.refused += 1
            raise OSError(errno.EMFILE, "Too many open files")
        return self._listener._accept()


@pytest.mark.parametrize(("most", "refused"), [(1, 0), (100, 1)], ids=["limit of connections", "limit of files"])
def test_no_connection_is_ended_while_none_waits(listener: Any, most: int, refused: int) -> None:
    """The system reports that no file may be opened even if there is nothing to accept."""
    ended: list[str] = []
    serving = Serving()
    refusing = Refusing(listener, times=0)

    def serve(sock: Any, address: Any) -> None:
        refusing.times = refused
        serving(sock, address)

    def end_idle() -> bool:
        ended.append("one")
        return True

    with accepting(Acceptor(refusing, serve, most, end_idle=end_idle)), client(listener):
        until(lambda: len(serving.begun) == 1)
        gevent.sleep(0.01)
    assert refusing.refused == refused
    assert ended == []


def test_accepting_pauses_when_descriptors_run_out(listener: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptors, "PAUSE_S", 0.01)
    serving = Serving()
    refusing = Refusing(listener)
    with accepting(Acceptor(refusing, serving, 100)), client(listener):
        until(lambda: len(serving.begun) == 1)
    assert refusing.refused == 1


@pytest.mark.parametrize(("every", "reported"), [(60.0, [1]), (0.0, [1] * 6)])
def test_repeated_system_errors_are_logged_seldom(
    listener: Any, monkeypatch: pytest.MonkeyPatch, records: list[dict[str, Any]], every: float, reported: list[int]
) -> None:
    monkeypatch.setattr(acceptors, "PAUSE_S", 0.001)
    monkeypatch.setattr(acceptors, "LOG_INTERVAL_S", every)
    logs.configure("gateway", "info", "json")
    serving = Serving()
    with accepting(Acceptor(Refusing(listener, 6), serving, 100)), client(listener):
        until(lambda: len(serving.begun) == 1)
    assert [record["times"] for record in records] == reported


def test_a_log_line_counts_the_errors_since_the_last_one(
    listener: Any, monkeypatch: pytest.MonkeyPatch, records: list[dict[str, Any]]
) -> None:
    monkeypatch.setattr(acceptors, "PAUSE_S", 0.001)
    moments = iter([0.0, 1.0, 9.0, 10.0, 11.0])
    monkeypatch.setattr(acceptors, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    logs.configure("gateway", "info", "json")
    serving = Serving()
    with accepting(Acceptor(Refusing(listener, 5), serving, 100)), client(listener):
        until(lambda: len(serving.begun) == 1)
    assert [record["times"] for record in records] == [1, 3]
