"""The worker's bus: messages that it answers by itself, over real ZeroMQ."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq
from msgspec import structs

from protocol import ids
from protocol.messages.peers import Ping, Pong
from protocol.messages.work import AttemptEnded, Cancel
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire import curve, endpoints, envelope
from protocol.wire.bus_address import ClusterMembership, write_membership
from workers.worker.bus import MAX_SUBSCRIPTION_BYTES, WorkerBus

DEADLINE = 5.0


class FakeSupervisor:
    """A bus under test, and the supervisor's socket."""

    def __init__(self, folder: Path) -> None:
        self._runtime = endpoints.RuntimeDirectory(folder)
        self._context = zmq.Context()
        self.router = self._context.socket(zmq.ROUTER)
        self.router.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self.router.bind(endpoints.bus(self._runtime.path))
        self.loop = Loop()
        self.name = ids.peer_id("worker")
        self._boot = os.urandom(6).hex()
        self.bus = WorkerBus(self.loop, ProcessContext(self._runtime.path, self._boot, os.getpid()), self.name)
        self.bus.connect()
        self.bus.send(Pong(0))
        assert self.receive() == Pong(0)

    def send(self, message: msgspec.Struct) -> None:
        self.router.send_multipart([self.name.encode(), envelope.encode(message)])

    def receive(self) -> object:
        end = time.monotonic() + DEADLINE
        while not self.router.poll(0):
            assert time.monotonic() < end
            self.loop.run_once(0.01)
        return envelope.decode(self.router.recv_multipart()[1])[0]

    def bind_logs(self) -> zmq.Socket[bytes]:
        """Return a socket to which the log records go."""
        logs = self._context.socket(zmq.PULL)
        logs.bind(endpoints.logs(self._runtime.path, self._boot))
        return logs

    def close(self) -> None:
        self.bus.close(server_lives=False)
        self.loop.close()
        self._context.destroy(0)
        self._runtime.release()


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[FakeSupervisor]:
    supervisor = FakeSupervisor(tmp_path / "rt")
    yield supervisor
    supervisor.close()


def test_a_pong_reports_new_errors_once(supervisor: FakeSupervisor) -> None:
    def ping(number: int) -> object:
        supervisor.send(Ping(number))
        return supervisor.receive()

    assert ping(1) == Pong(1)
    supervisor.loop.errors += 2
    assert ping(2) == Pong(2, errors=2)
    assert ping(3) == Pong(3)


def test_ends_that_wait_are_sent_before_any_other_message(supervisor: FakeSupervisor) -> None:
    ends = [AttemptEnded("g", number, 1) for number in (1, 2)]
    for end in ends:
        supervisor.bus.send_soon(end, 60.0)
    supervisor.bus.send(Pong(9))
    sent = supervisor.receive()
    assert [structs.replace(end, age=0.0) for end in sent.ends] == ends
    assert supervisor.receive() == Pong(9)


def test_ends_that_have_waited_for_half_of_their_time_leave_when_the_process_is_awake(
    supervisor: FakeSupervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    ends = [AttemptEnded("g", number, 1) for number in (1, 2)]
    for waited, end in enumerate(ends):
        monkeypatch.setattr(supervisor.loop, "now", lambda waited=waited: began + waited)
        supervisor.bus.send_soon(end, 60.0)
    for waited in (29, 31):
        monkeypatch.setattr(supervisor.loop, "now", lambda waited=waited: began + waited)
        supervisor.bus.send_ends_if_due()
        if waited < 30:
            supervisor.loop.run_once(0.0)
            assert not supervisor.router.poll(20)
    sent = supervisor.receive()
    assert [structs.replace(end, age=0.0) for end in sent.ends] == ends
    assert [end.age for end in sent.ends] == pytest.approx([31.0, 30.0])
    supervisor.bus.send(Pong(9))
    assert supervisor.receive() == Pong(9), "they are sent once"


def test_a_new_connection_has_nothing_of_the_former_one(supervisor: FakeSupervisor) -> None:
    supervisor.bus.send_soon(AttemptEnded("g", 1, 1), 0.0)
    supervisor.bus.disconnect()
    supervisor.bus.send(Pong(1))
    supervisor.bus.send_soon(AttemptEnded("g", 2, 1), 0.0)
    supervisor.loop.run_once(0.01)
    supervisor.bus.connect()
    supervisor.bus.send(Pong(2))
    assert supervisor.receive() == Pong(2)
    supervisor.send(Ping(3))
    assert supervisor.receive() == Pong(3)


def test_a_connection_that_is_replaced_while_it_is_read_is_read_no_more(supervisor: FakeSupervisor) -> None:
    received: list[object] = []

    def replace(message: object, _payload: bytes) -> None:
        received.append(message)
        supervisor.bus.disconnect()
        supervisor.bus.connect()
        supervisor.bus.send(Pong(0))

    supervisor.bus.on_message = replace
    for number in (1, 2, 3):
        supervisor.send(Cancel("g", number, 1, ""))
    assert supervisor.receive() == Pong(0)
    supervisor.send(Ping(4))
    assert supervisor.receive() == Pong(4)
    assert received == [Cancel("g", 1, 1, "")]


def test_log_records_wait_for_the_next_supervisor_up_to_a_bound(supervisor: FakeSupervisor) -> None:
    first = supervisor.bind_logs()
    supervisor.bus.log(b"first")
    assert first.recv() == b"first"
    first.close(0)
    began = time.monotonic()
    while not supervisor.bus.log.dropped:
        assert time.monotonic() - began < DEADLINE
        supervisor.bus.log(b"{later}")
    second = supervisor.bind_logs()
    received = [second.recv() for _ in range(100)]
    assert set(received) == {b"{later}"}
    second.close(0)


def test_a_gateway_elsewhere_may_subscribe_and_may_not_send_too_much_at_once(tmp_path: Path) -> None:
    runtime, keys = endpoints.RuntimeDirectory(tmp_path / "rt"), curve.new_cluster_keys().of_member()
    write_membership(runtime.path, ClusterMembership("127.0.0.1:9", keys, listen="127.0.0.1"))
    loop, topics, ended = Loop(), list[bytes](), False
    context = ProcessContext(runtime.path, os.urandom(6).hex(), os.getpid())
    bus = WorkerBus(loop, context, ids.peer_id("worker"))
    bus.on_subscription = lambda joined, topic: topics.append(topic) if joined else None
    with zmq.Context() as gateways:
        gateway = gateways.socket(zmq.SUB)
        gateway.setsockopt(zmq.LINGER, 0)
        monitor = gateway.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        curve.use_curve(gateway, bus.remote_endpoint, keys.member.public, keys)
        gateway.connect(bus.remote_endpoint)
        gateway.subscribe(b"topic")
        end = time.monotonic() + DEADLINE
        while not topics:
            assert time.monotonic() < end
            loop.run_once(0.01)
        gateway.subscribe(b"x" * MAX_SUBSCRIPTION_BYTES)
        while not ended and len(topics) < 2:
            assert time.monotonic() < end
            loop.run_once(0.01)
            ended = bool(monitor.poll(0))
        gateway.disable_monitor()
        monitor.close(0)
        gateway.close(0)
    bus.close(server_lives=False)
    loop.close()
    runtime.release()
    assert topics == [b"topic"]
