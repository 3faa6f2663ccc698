"""CURVE: a tcp listener admits only members, the ipc listener of the same socket has none, and a connection's end is seen."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from protocol.wire import curve, frames
from protocol.wire.bus_address import BusAddress, ClusterMembership, MemberKeys, tcp_endpoint
from protocol.wire.bus_connection import RemoteConnection, connect_once
from tests.support.network.curve_listener import KEYS, CurveListener
from tests.support.network.nodes import Network
from tests.support.tcp_link import TcpLink
from tests.support.waiting import DEADLINE, wait_for

OTHERS = curve.new_cluster_keys()


@pytest.fixture
def head(tmp_path: Path) -> Iterator[CurveListener]:
    made = CurveListener(tmp_path)
    yield made
    made.close()


Connect = Callable[[BusAddress], RemoteConnection]


@pytest.fixture
def connect() -> Iterator[Connect]:
    made: list[RemoteConnection] = []
    with zmq.Context() as context:

        def begin(address: BusAddress) -> RemoteConnection:
            made.append(RemoteConnection(context, address))
            return made[-1]

        yield begin
        for each in made:
            each.close()


def test_a_member_is_connected_and_sees_the_end(head: CurveListener, connect: Connect) -> None:
    connection = connect(head.address(KEYS.of_member()))
    wait_for(lambda: head.settled(connection), "the connection")
    assert (connection.connected, connection.ended) == (True, False)
    assert frames.send(connection.dealer, b"hello")
    assert head.received()[1:] == [b"hello"]
    head.router.close(0)
    head.check.close()
    wait_for(lambda: connection.look() or connection.ended, "the end of the connection")


def test_messages_that_a_slow_link_takes_seconds_to_carry_do_not_end_the_connection(
    head: CurveListener, connect: Connect
) -> None:
    """The heartbeats of both sides wait behind the messages for longer than a silent machine is waited for."""
    rate, body = 400_000, bytes(1_000_000)
    assert 2 * len(body) / rate * 1000 > curve.HEARTBEAT_INTERVAL_MS + curve.SILENCE_MS
    with TcpLink(f"127.0.0.1:{head.port}", rate) as link:
        connection = connect(head.address(KEYS.of_member(), link.address))
        wait_for(lambda: head.settled(connection), "the connection")
        assert frames.send(connection.dealer, b"hello")
        route, hello = head.received()
        assert hello == b"hello"
        assert frames.send(connection.dealer, body)
        head.router.send_multipart([route, body])

        def arrived(socket: zmq.Socket[bytes]) -> bool:
            connection.look()
            assert not connection.ended
            return bool(socket.poll(0))

        wait_for(lambda: arrived(head.router) and arrived(connection.dealer), "both messages")
        assert head.router.recv_multipart() == [route, body]
        assert connection.dealer.recv() == body


MEMBER = """
import sys, zmq
from pathlib import Path
import msgspec
from protocol.wire.bus_address import BusAddress, ClusterMembership
from protocol.wire.bus_connection import RemoteConnection
membership = msgspec.json.decode(sys.argv[1], type=ClusterMembership)
connection = RemoteConnection(zmq.Context(), BusAddress(Path(), membership, remote=True))
connection.dealer.send(b"hello")
while not connection.ended:
    connection.monitor.poll()
    connection.look()
connection.close()
"""


def test_both_sides_see_that_packets_pass_no_more(tmp_path: Path) -> None:
    """Nothing closes the idle connection, so only its heartbeats and the kernel can notice it."""
    with Network(2) as network:
        near, far = network.nodes
        head = CurveListener(tmp_path, near.address)
        monitor = head.router.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        membership = msgspec.json.encode(head.address(KEYS.of_member()).cluster).decode()
        with subprocess.Popen(far.command(sys.executable, "-c", MEMBER, membership)) as member:
            try:
                assert head.received()[1:] == [b"hello"]
                network.link(far, up=False)
                assert monitor.poll(DEADLINE * 1000), "the head sees it"
                assert member.wait(DEADLINE) == 0, "the member sees it"
            finally:
                member.kill()
                head.router.disable_monitor()
                monitor.close(0)
                head.close()


@pytest.mark.parametrize(
    ("keys", "refused"),
    [
        (MemberKeys(KEYS.supervisor.public, OTHERS.member), 1),
        (MemberKeys(OTHERS.supervisor.public, KEYS.member), 0),
    ],
    ids=["another member's key", "another supervisor's key"],
)
def test_a_peer_with_a_wrong_key_is_refused(
    head: CurveListener, connect: Connect, keys: MemberKeys, refused: int
) -> None:
    connection = connect(head.address(keys))
    frames.send(connection.dealer, b"hello")
    wait_for(lambda: head.settled(connection), "the refusal")
    assert (connection.connected, connection.ended, head.check.refused) == (False, True, refused)
    assert not head.router.poll(0)


def test_a_peer_without_curve_is_refused_by_tcp_and_admitted_by_ipc(head: CurveListener) -> None:
    with zmq.Context() as context:
        plain = context.socket(zmq.DEALER)
        plain.setsockopt(zmq.ROUTING_ID, b"w00000002")
        plain.setsockopt(zmq.LINGER, 0)
        plain.setsockopt(zmq.RECONNECT_IVL, -1)
        monitor = plain.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        plain.connect(tcp_endpoint("127.0.0.1", head.port))
        frames.send(plain, b"hello")
        assert monitor.poll(DEADLINE * 1000), "it is refused"
        local = connect_once(context.socket(zmq.DEALER), BusAddress(head.runtime), b"w00000003")
        frames.send(local, b"hello")
        assert head.received() == [b"w00000003", b"hello"]
        assert head.check.refused == 0
        plain.disable_monitor()
        for each in (monitor, plain, local):
            each.close(0)


def test_a_supervisor_that_does_not_listen_is_not_connected_to(tmp_path: Path, connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    membership = ClusterMembership(f"127.0.0.1:{port}", KEYS.of_member())
    connection = connect(BusAddress(tmp_path, membership, remote=True))
    wait_for(lambda: connection.look() or connection.ended, "the refused connection")
    assert not connection.connected
