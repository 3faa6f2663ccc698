"""A peer finds the listening supervisor, and its DEALER connects once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import zmq

from protocol.wire import endpoints, frames
from protocol.wire.bus_address import BusAddress
from protocol.wire.bus_connection import connect_once, find_supervisor, probe_interval
from tests.support.waiting import pause, wait_for


def router(context: zmq.Context[zmq.Socket[bytes]], runtime: Path) -> zmq.Socket[bytes]:
    made = context.socket(zmq.ROUTER)
    made.bind(endpoints.bus(runtime))
    return made


def test_the_supervisor_that_listens_is_found_by_its_pid(tmp_path: Path) -> None:
    assert find_supervisor(tmp_path) == 0
    with zmq.Context() as context:
        listening = router(context, tmp_path)
        assert find_supervisor(tmp_path) == os.getpid()
        file = endpoints.socket_file(endpoints.bus(tmp_path))
        left = file.with_name("left")
        os.link(file, left)
        listening.close(0)
        left.replace(file)
        wait_for(lambda: find_supervisor(tmp_path) == 0, "nothing listens behind the file that was left")
        assert file.is_socket()


def test_a_dealer_connects_once(tmp_path: Path) -> None:
    with zmq.Context() as context:
        first = router(context, tmp_path)
        dealer = connect_once(context.socket(zmq.DEALER), BusAddress(tmp_path), b"w1")
        assert frames.send(dealer, b"hello")
        assert first.poll(5000)
        assert first.recv_multipart() == [b"w1", b"hello"]
        first.close(0)
        wait_for(lambda: not frames.send(dealer, b"late"), "the dealer takes nothing more")
        second = router(context, tmp_path)
        pause(0.2)
        assert not frames.send(dealer, b"late")
        other = connect_once(context.socket(zmq.DEALER), BusAddress(tmp_path), b"w1")
        assert frames.send(other, b"hello again")
        assert second.poll(5000)
        assert second.recv_multipart() == [b"w1", b"hello again"]
        for each in (dealer, other, second):
            each.close(0)


def test_looks_get_rarer_the_longer_there_is_no_supervisor() -> None:
    intervals = [probe_interval(waited) for waited in (0.0, 0.05, 0.2, 0.5, 1.0, 60.0)]
    assert intervals == pytest.approx([0.01, 0.01, 0.02, 0.05, 0.1, 0.1])
