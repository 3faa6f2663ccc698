"""Accepting connections: in batches, up to a limit, with errors of the system, and at shutdown."""

from __future__ import annotations

import contextlib
import errno
import itertools
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import gevent
import gevent.socket
import pytest

from gateway.internal_errors import INTERNAL_ERRORS
from gateway.server import acceptor as acceptors
from gateway.server.acceptor import Acceptor
from protocol.runtime import logs

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


@pytest.mark.parametrize(("most", "largest"), [(3, 3), (64, 6)])
def test_the_acceptor_yields_to_other_greenlets_and_doubles_its_batch_in_a_burst(
    listener: Any, monkeypatch: pytest.MonkeyPatch, most: int, largest: int
) -> None:
    monkeypatch.setattr(acceptors, "MAX_ACCEPT_BATCH", most)
    serving = Serving()
    with contextlib.ExitStack() as clients:
        for _ in range(12):
            clients.enter_context(client(listener))
        seen = [0]
        with accepting(Acceptor(listener, serving, 100, accept_batch=3)), gevent.Timeout(DEADLINE):
            while seen[-1] < 12:
                gevent.sleep(0)  # until the next iteration
                seen.append(len(serving.begun))
    assert max(after - before for before, after in itertools.pairwise(seen)) == largest


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


def test_connections_one_after_the_other_need_one_greenlet(listener: Any) -> None:
    serving = Serving()
    with accepting(Acceptor(listener, serving, 100)):
        for count in range(1, 6):
            client(listener).close()
            until(lambda count=count: serving.ended == count)
    assert len(serving.greenlets) == 1


def test_a_failing_connection_does_not_affect_others(listener: Any) -> None:
    serving = Serving()
    acceptor = Acceptor(listener, serving, 100)
    with accepting(acceptor), client(listener) as other:
        until(lambda: len(serving.begun) == 1)
        for _ in range(3):
            with client(listener) as one:
                one.sendall(b"fail")
                assert one.recv(1) == b""
        assert serving.ended == 3
        assert len(acceptor) == 1
        other.sendall(b"bye")
        until(lambda: serving.ended == 4)


def test_log_lines_of_a_connection_have_no_request_id_of_an_earlier_one(
    listener: Any, records: list[dict[str, Any]]
) -> None:
    def serve(sock: Any, _address: Any) -> None:
        logs.get_logger().info("come")
        logs.bind_request_id("a-request")
        logs.get_logger().info("asked")
        sock.close()

    logs.configure("gateway", "info", "json")
    acceptor = Acceptor(listener, serve, 100)
    with accepting(acceptor):
        for _ in range(2):
            with client(listener) as one:
                assert one.recv(1) == b""
            until(lambda: not len(acceptor))
    assert [record.get("request_id") for record in records] == [None, "a-request"] * 2


def test_an_exception_in_a_connection_is_counted_and_the_next_is_served(listener: Any) -> None:
    def serve(sock: Any, _address: Any) -> None:
        sock.close()
        raise RuntimeError("ours")

    before = INTERNAL_ERRORS.count
    with accepting(Acceptor(listener, serve, 100)):
        for count in (1, 2):
            with client(listener) as one:
                assert one.recv(1) == b""
            until(lambda count=count: INTERNAL_ERRORS.count == before + count)


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


def test_connections_in_the_backlog_are_served_at_shutdown(listener: Any) -> None:
    serving = Serving()
    acceptor = Acceptor(listener, serving, 2)
    with contextlib.ExitStack() as clients:
        for _ in range(5):
            clients.enter_context(client(listener)).sendall(b"bye")
        acceptor.close()
        assert len(acceptor) == 5
        until(lambda: serving.ended == 5 and not len(acceptor))


def test_a_listener_can_be_shut_down_for_all_processes(listener: Any) -> None:
    with listener.dup() as elsewhere:
        Acceptor(listener, Serving(), 2).close(for_all=True)
        with pytest.raises(ConnectionRefusedError):
            gevent.socket.create_connection(elsewhere.getsockname())


def test_a_closed_listener_does_no_harm(listener: Any, records: list[dict[str, Any]]) -> None:
    logs.configure("gateway", "info", "json")
    serving = Serving()
    acceptor = Acceptor(listener, serving, 100)
    with accepting(acceptor), client(listener) as one:
        until(lambda: len(serving.begun) == 1)
        listener.shutdown(socket.SHUT_RDWR)
        until(lambda: not acceptor._watcher.active)
        one.sendall(b"bye")
        until(lambda: serving.ended == 1)
    assert records == []


def test_open_connections_stay_open_until_they_are_killed(listener: Any) -> None:
    serving = Serving()
    acceptor = Acceptor(listener, serving, 100)
    acceptor.start()
    with client(listener) as one:
        until(lambda: len(acceptor) == 1)
        address = listener.getsockname()
        acceptor.close()
        acceptor.close()
        with pytest.raises(ConnectionRefusedError):
            gevent.socket.create_connection(address)
        assert len(acceptor) == 1
        acceptor.kill()
        assert one.recv(1) == b""
        until(lambda: not len(acceptor))


def test_a_paused_acceptor_leaves_connections_to_others_until_it_is_started_again(listener: Any) -> None:
    serving = Serving()
    acceptor = Acceptor(listener, serving, 100)
    with accepting(acceptor), client(listener) as first:
        until(lambda: len(serving.begun) == 1)
        acceptor.pause()
        with client(listener) as second:
            first.sendall(b"bye")
            until(lambda: serving.ended == 1)
            gevent.sleep(0.01)
            assert len(serving.begun) == 1, "the end of one is not a reason to take another"
            acceptor.start()
            until(lambda: len(serving.begun) == 2)
            second.sendall(b"bye")
            until(lambda: serving.ended == 2)


def test_a_paused_acceptor_takes_no_connection_with_it_when_it_is_closed(listener: Any) -> None:
    paused, serving = Serving(), Serving()
    other = listener.dup()
    acceptor = Acceptor(listener, paused, 100)
    acceptor.pause()
    with client(listener):
        acceptor.close()
        with accepting(Acceptor(other, serving, 100)):
            until(lambda: len(serving.begun) == 1)
    assert paused.begun == []
