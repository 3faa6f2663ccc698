"""Accepting connections: in batches, with failures of what serves them, at shutdown, and after a pause."""

from __future__ import annotations

import contextlib
import itertools
import socket
from typing import Any

import gevent
import gevent.socket
import pytest

from gateway.internal_errors import INTERNAL_ERRORS
from gateway.server import acceptor as acceptors
from gateway.server.acceptor import Acceptor
from protocol.runtime import logs
from tests.gateway.server.conftest import DEADLINE, Serving, accepting, client, until


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
