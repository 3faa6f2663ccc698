"""A worker on another node and its supervisor, over tcp with CURVE: messages, log records, and one supervisor after the other."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from msgspec import structs

from protocol.messages.engines import SamplingDefaults
from protocol.messages.peers import Hello, Ping, Pong
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire import curve, frames
from protocol.wire.bus_address import BusAddress, ClusterMembership, write_membership
from protocol.wire.bus_connection import ON_OTHER_NODE
from protocol.wire.peer_proof import proof_for
from supervisor.bus import remote_router
from supervisor.bus.sockets import BindError, SupervisorBus
from tests.support.ports import free_port_pair
from tests.support.tcp_link import TcpLink
from tests.support.waiting import wait_for
from workers.worker.bus import WorkerBus

KEYS = curve.new_cluster_keys()
WORKER = "w00000001"
HELLO = Hello("worker", WORKER, os.getpid(), "boot", node="gpu2", proof=proof_for(KEYS, "boot", WORKER))


class HeadBus:
    """A supervisor's bus, and what it has received."""

    def __init__(self, loop: Loop, address: BusAddress) -> None:
        self.received: list[tuple[str, Any, bytes]] = []
        self.logged: list[bytes] = []
        self.bus = SupervisorBus(loop, address, "boot", KEYS)
        self.bus.listen(
            lambda *message: self.received.append(message), self.logged.append, lambda _: None, lambda *_: None
        )


class TwoNodes:
    """Two nodes of one machine, in one loop."""

    def __init__(self, folder: Path, rate: float = 0.0) -> None:
        """``rate``: bytes per second of the link between them, if it is a slow one."""
        self.loop = Loop()
        self.membership = ClusterMembership(f"127.0.0.1:{free_port_pair()}", KEYS.of_member())
        self.link = TcpLink(self.membership.address, rate) if rate else None
        through = structs.replace(self.membership, address=self.link.address) if self.link else self.membership
        for node, membership in (("head", self.membership), ("gpu2", through)):
            (folder / node).mkdir()
            write_membership(folder / node, membership)
        self.head_address = BusAddress(folder / "head", self.membership)
        self.context = ProcessContext(folder / "gpu2", "boot", os.getpid(), "gpu2")
        self.heads: list[HeadBus] = []
        self.worker = WorkerBus(self.loop, self.context, WORKER)
        self.ends = 0
        self.worker.on_connection_ended = self._ended

    def _ended(self) -> None:
        self.ends += 1
        self.worker.disconnect()

    def start_head(self) -> HeadBus:
        self.heads.append(HeadBus(self.loop, self.head_address))
        return self.heads[-1]

    def until(self, condition: Callable[[], Any], what: str) -> None:
        def look() -> Any:
            self.loop.run_once(0.01)
            return condition()

        wait_for(look, what)

    def connect(self) -> None:
        self.until(lambda: self.worker.find_supervisor() == ON_OTHER_NODE, "a connection")
        self.worker.connect()
        self.worker.send(HELLO)

    def close(self) -> None:
        self.worker.close(server_lives=False)
        for head in self.heads:
            head.bus.close()
        self.loop.close()
        if self.link is not None:
            self.link.__exit__()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TwoNodes]:
    made = TwoNodes(tmp_path)
    yield made
    made.close()


def test_messages_and_log_records_of_another_node_arrive(cluster: TwoNodes) -> None:
    head = cluster.start_head()
    cluster.connect()
    cluster.worker.send(Pong(7), b"payload")
    cluster.worker.log(b"{record}")
    cluster.until(lambda: len(head.received) == 2 and head.logged, "what was sent")
    assert head.received == [(WORKER, HELLO, b""), (WORKER, Pong(7), b"payload")]
    assert head.logged == [b"{record}"]
    head.bus.send(WORKER, Ping(8))
    cluster.until(lambda: len(head.received) == 3, "the answer")
    assert head.received[2] == (WORKER, Pong(8), b"")


def test_the_end_of_a_connection_is_that_of_the_supervisor_and_the_next_one_is_found(cluster: TwoNodes) -> None:
    assert cluster.worker.find_supervisor() == 0
    first = cluster.start_head()
    cluster.connect()
    cluster.worker.send(Pong(1))
    cluster.until(lambda: first.received, "a message")
    cluster.heads.remove(first)
    first.bus.close()
    cluster.until(lambda: cluster.ends, "the end of the connection")
    assert cluster.worker.is_broken()
    cluster.until(lambda: cluster.worker.find_supervisor() == 0, "no supervisor is found")
    second = cluster.start_head()
    cluster.connect()
    cluster.worker.send(Pong(2))
    cluster.until(lambda: len(second.received) == 2, "a message on the second connection")
    assert second.received == [(WORKER, HELLO, b""), (WORKER, Pong(2), b"")]
    assert cluster.ends == 1


def test_a_worker_publishes_the_same_events_on_ipc_and_for_other_nodes_on_tcp(cluster: TwoNodes) -> None:
    subscribed: list[bytes] = []
    cluster.worker.on_subscription = lambda _joined, topic: subscribed.append(topic)
    assert cluster.worker.endpoint.startswith("ipc:")
    assert cluster.worker.remote_endpoint.startswith("tcp://127.0.0.1:")
    with zmq.Context() as context:
        readers = [context.socket(zmq.SUB) for _ in range(2)]
        remote = cluster.worker.remote_endpoint
        curve.use_curve(readers[1], remote, KEYS.member.public, KEYS.of_member())
        for reader, endpoint in zip(readers, (cluster.worker.endpoint, remote), strict=True):
            reader.subscribe(b"g1.")
            reader.connect(endpoint)
        cluster.until(lambda: len(subscribed) == 1 and readers_are_known(cluster, readers), "both subscriptions")
        for reader in readers:
            reader.close(0)


def readers_are_known(cluster: TwoNodes, readers: list[zmq.Socket[bytes]]) -> bool:
    """Publish, and return whether all readers have got the same event. A subscription is reported only once for a topic."""
    cluster.worker.publish(b"g1.", b"event")
    event = b"g1." + WORKER.encode() + b".event"
    return all(frames.readable(reader) and reader.recv() == event for reader in readers)


def test_workers_listen_within_the_ports_that_a_firewall_lets_pass(cluster: TwoNodes) -> None:
    first = free_port_pair()
    ports = f"{first}-{first + 1}"
    made: list[WorkerBus] = []
    try:
        made += [WorkerBus(cluster.loop, cluster.context, name, ports=ports) for name in ("w1", "w2")]
        assert {each.remote_endpoint.rpartition(":")[2] for each in made} == {str(first), str(first + 1)}
        with pytest.raises(OSError, match=rf"{first} to {first + 1} \(worker_ports\) is in use"):
            WorkerBus(cluster.loop, cluster.context, "w3", ports=ports)
    finally:
        for each in made:
            each.close(server_lives=False)


def test_a_port_that_another_program_has_is_named(cluster: TwoNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_router, "_BIND_TIMEOUT_S", 0.0)
    cluster.start_head()
    with pytest.raises(BindError) as raised:
        SupervisorBus(cluster.loop, cluster.head_address, "other boot", KEYS)
    assert (raised.value.errno, raised.value.filename) == (errno.EADDRINUSE, cluster.membership.address)


def test_without_keys_the_head_has_no_tcp_listener(cluster: TwoNodes) -> None:
    bus = SupervisorBus(cluster.loop, cluster.head_address, "boot")
    try:
        cluster.worker.find_supervisor()
        cluster.until(lambda: cluster.worker.find_supervisor() == 0, "a refused connection")
        assert not cluster.worker.remote_endpoint.startswith("ipc")
    finally:
        bus.close()


def test_a_peer_answers_pings_while_a_message_arrives_that_is_long_on_the_way(tmp_path: Path) -> None:
    """The next ping waits behind it."""
    cluster, body = TwoNodes(tmp_path, rate=400_000), bytes(1_200_000)
    try:
        head = cluster.start_head()
        got: list[bytes] = []
        cluster.worker.on_message = lambda _message, payload: got.append(payload)
        cluster.connect()
        cluster.until(lambda: head.received, "the hello")
        head.bus.send(WORKER, Ping(1))
        head.bus.send(WORKER, SamplingDefaults({}), body)
        head.bus.send(WORKER, Ping(2))
        cluster.until(lambda: got, "the message")
        assert got == [body]
        cluster.until(lambda: head.received[-1][1] == Pong(2), "the next answer")
        assert len(head.received) > 3
        assert all(message == Pong(1) for _, message, _ in head.received[1:-1])
    finally:
        cluster.close()
