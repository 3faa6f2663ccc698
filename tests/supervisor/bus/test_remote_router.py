"""What others than our processes can do to the supervisor's tcp socket: with the key of a member, and without."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import structlog
import zmq

from protocol.messages.peers import Hello, Ping, Pong, Shutdown
from protocol.runtime import descriptors
from protocol.runtime.loop import Loop
from protocol.wire import curve, envelope, frames, parts
from protocol.wire.bus_address import BusAddress, ClusterMembership
from protocol.wire.bus_connection import RemoteConnection
from protocol.wire.peer_proof import new_identity, proof_for
from supervisor.bus import remote_router
from supervisor.bus.sockets import SupervisorBus
from tests.support.ports import free_port_pair
from tests.support.waiting import wait_for

KEYS = curve.new_cluster_keys()
LONGEST: Final = 1_000_000
CONNECTIONS: Final = 1000
GREETING: Final = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)
COMMAND, LONG_COMMAND = 0x04, 0x06


def hello_of(worker: str) -> Hello:
    """Return the Hello of a worker that the supervisor has started."""
    return Hello("worker", worker, 1, "boot", node="gpu2", proof=proof_for(KEYS, "boot", worker))


HELLO = hello_of("w00000001")
STARTED, CHOSEN = proof_for(KEYS, "boot", "w00000002"), new_identity("gateway")


class Member(RemoteConnection):
    """A process of another node that has the key."""

    def send(self, message: bytes) -> None:
        for frame in self.split(message):
            assert frames.send(self.dealer, frame)


class Head:
    """A supervisor's bus, and members that are connected to it."""

    def __init__(self, folder: Path) -> None:
        self.loop = Loop()
        self.membership = ClusterMembership(f"127.0.0.1:{free_port_pair()}", KEYS.of_member())
        self.address = BusAddress(folder, self.membership)
        self.received: list[tuple[str, Any, bytes]] = []
        self.alive: list[str] = []
        self.bus = SupervisorBus(self.loop, self.address, "boot", KEYS, LONGEST)
        self.bus.listen(lambda *message: self.received.append(message), bytes, str, lambda *_: None, self.alive.append)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.members: list[Member] = []

    @property
    def port(self) -> int:
        return int(self.membership.address.rpartition(":")[2])

    def until(self, condition: Callable[[], Any], what: str, deadline: float = 15.0) -> None:
        def look() -> Any:
            self.loop.run_once(0.01)
            return condition()

        wait_for(look, what, deadline)

    def member(self, hello: Hello | None = HELLO) -> Member:
        """Connect a process that has the key, and let it say Hello."""
        made = Member(self.context, self.address._replace(remote=True))
        self.members.append(made)

        def connected() -> bool:
            made.look()
            return made.connected

        self.until(connected, "a connection")
        if hello is not None:
            made.send(envelope.encode(hello))
        return made

    def answered(self, member: Member) -> Any:
        """Wait for a message to a member."""
        self.until(lambda: member.dealer.poll(0), "a message")
        return envelope.decode(member.dealer.recv())[0]

    def raw(self, *data: bytes) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port))
        made.setblocking(False)
        for each in data:
            made.send(each)
        return made

    def close(self) -> None:
        for member in self.members:
            member.close()
        self.context.term()
        self.bus.close()
        self.loop.close()


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    made = Head(tmp_path)
    yield made
    made.close()


def is_over(connection: socket.socket) -> bool:
    """Whether the other side has closed it; what it has sent is read."""
    try:
        return connection.recv(65_536) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors_open() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        ({"role": "oracle"}, "unknown role oracle"),
        ({"role": "gateway", "node": ""}, "the head do not connect over tcp"),
        ({"node": "head"}, "the head do not connect over tcp"),
        ({"node": "../gpu"}, "cannot be the name of a node"),
        ({"node": "n" * 64}, "cannot be the name of a node"),
        ({"node": "gpu2\n"}, "cannot be the name of a node"),
        ({"id": "W 1"}, "is not the id of a peer"),
        ({"proof": ""}, "does not prove that it is w00000001"),
        ({"proof": STARTED}, "does not prove that it is w00000001"),
        ({"boot": "another"}, "does not prove that it is w00000001"),
        ({"role": "gateway"}, "does not prove"),
        ({"role": "gateway", "id": CHOSEN.id}, "does not prove"),
        ({"role": "agent", "id": CHOSEN.id, "proof": CHOSEN.id}, "does not prove"),
    ],
)
def test_a_hello_that_is_refused_is_told_why_and_nothing_is_taken_from_its_connection(
    head: Head, hello: dict[str, str], why: str
) -> None:
    member = head.member(msgspec.structs.replace(HELLO, **hello))
    refusal = head.answered(member)
    assert isinstance(refusal, Shutdown)
    assert why in refusal.reason
    member.send(envelope.encode(Pong(1)))
    head.until(lambda: head.bus.malformed == 2, "the message is counted")
    assert head.received == []


@pytest.mark.parametrize("role", ["gateway", "agent", "gateway_host"])
def test_a_process_that_has_chosen_its_id_is_its_only_owner(head: Head, role: str) -> None:
    chosen = new_identity(role)
    own = Hello(role, chosen.id, 1, "boot", node="gpu2", proof=chosen.proof)
    member = head.member(own)
    head.until(lambda: head.received, "the hello")
    thief = head.member(msgspec.structs.replace(own, node="gpu3", proof=new_identity(role).proof))
    assert isinstance(head.answered(thief), Shutdown)
    head.bus.send(chosen.id, Ping(1))
    assert head.answered(member) == Ping(1)
    again = head.member(own)
    head.until(lambda: len(head.received) == 2, "it connects again")
    head.bus.send(chosen.id, Ping(2))
    assert head.answered(again) == Ping(2)


def test_refusals_of_one_kind_have_few_lines_in_the_log(head: Head) -> None:
    member = head.member(None)
    with structlog.testing.capture_logs() as lines:
        for number in range(20):
            member.send(envelope.encode(msgspec.structs.replace(HELLO, role=f"oracle{number}")))
        head.until(lambda: head.bus.malformed == 20, "all are refused")
    refusals = [each for each in lines if each["event"] == "peer refused"]
    assert len(refusals) == 5, "the first, the second, the fourth …"


def test_nothing_is_taken_before_a_hello_and_a_connection_has_one_peer(head: Head) -> None:
    member = head.member(None)
    member.send(envelope.encode(Pong(1)))
    member.send(envelope.encode(HELLO))
    head.until(lambda: head.received, "the hello")
    assert (head.received, head.bus.malformed) == ([("w00000001", HELLO, b"")], 1)
    member.send(envelope.encode(hello_of("w00000002")))
    assert isinstance(head.answered(member), Shutdown)
    head.until(lambda: head.bus.malformed == 2, "the second one is refused")


def test_a_peer_is_reached_through_its_latest_connection_also_with_a_last_word(head: Head) -> None:
    first = head.member()
    head.until(lambda: len(head.received) == 1, "the first hello")
    second = head.member()
    head.until(lambda: len(head.received) == 2, "the second hello")
    head.bus.send("w00000001", Ping(1))
    assert head.answered(second) == Ping(1)
    head.bus.forget("w00000001")
    head.bus.send("w00000001", Shutdown(0.0, "it has ended"))
    assert head.answered(second) == Shutdown(0.0, "it has ended")
    assert not first.dealer.poll(0)
    first.send(envelope.encode(Pong(1)))
    head.until(lambda: head.bus.malformed, "the former connection is that of no peer")


def test_connections_that_have_ended_are_forgotten(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_router, "MAX_ENDED", 3)
    for number in range(5):
        head.member(hello_of(f"w{number}"))
        head.until(lambda: len(head.received) == number + 1, "a hello")  # noqa: B023 - called at once
        head.bus.forget(f"w{number}")
    for number in range(5):
        head.bus.send(f"w{number}", Ping(number))
    assert head.bus.undeliverable == 2


def test_a_long_message_shows_its_sender_alive_and_one_that_is_too_long_is_dropped(head: Head) -> None:
    member = head.member()
    member.send(envelope.encode(Pong(1), bytes(LONGEST - 1000)))
    head.until(lambda: len(head.received) == 2, "the message")
    assert len(head.received[1][2]) == LONGEST - 1000
    assert set(head.alive) == {"w00000001"}
    assert len(head.alive) == LONGEST // parts.PART_BYTES
    member.send(envelope.encode(Pong(2), bytes(LONGEST)))
    member.send(envelope.encode(Pong(3)))
    head.until(lambda: len(head.received) == 3, "the next message")
    assert head.received[2][1] == Pong(3)
    assert head.bus.malformed >= 1


def test_a_long_message_to_a_peer_arrives_whole(head: Head) -> None:
    member = head.member()
    head.until(lambda: head.received, "the hello")
    head.bus.send("w00000001", Ping(1), bytes(LONGEST))
    found: list[bytes] = []

    def arrived() -> bool:
        found.extend(member.messages(frames.receive_each(member.dealer)))
        return bool(found)

    head.until(arrived, "the message")
    assert envelope.decode(found[0]) == (Ping(1), bytes(LONGEST))


@pytest.mark.parametrize(
    "data",
    [
        GREETING + bytes([LONG_COMMAND]) + struct.pack(">Q", 1 << 40),
        GREETING + bytes([LONG_COMMAND]) + struct.pack(">Q", (1 << 64) - 1),
        GREETING + bytes([LONG_COMMAND]) + struct.pack(">Q", parts.MAX_FRAME_BYTES + 1),
        GREETING + bytes([COMMAND, 200]) + bytes(200),
        GREETING.replace(b"CURVE", b"NULL\0"),
        GREETING.replace(b"CURVE", b"PLAIN"),
        b"\xff" + bytes(8) + b"\x7f\x01\x01" + bytes(16),
        b"\x01\x00" + bytes(64),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(64),
        bytes(range(256)) * 4,
    ],
    ids=["terabyte", "longest", "long", "no command", "null", "plain", "zmtp2", "zmtp1", "http", "noise"],
)
def test_bytes_of_a_peer_without_a_key_end_its_connection_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr(curve, "SILENCE_MS", 60_000)  # the bytes alone must end it
    head = Head(tmp_path)
    member = head.member()
    before = resident()
    stranger = head.raw(data)
    head.until(lambda: is_over(stranger), "the connection is ended")
    stranger.close()
    assert resident() - before < 20_000_000
    member.send(envelope.encode(Pong(1)))
    head.until(lambda: len(head.received) == 2, "a member goes on")
    head.close()


def test_a_thousand_connections_without_a_key_end_by_themselves_and_members_go_on(head: Head) -> None:
    """Some say nothing, some break off in the handshake, some send as much as they can."""
    descriptors.raise_limit()
    member = head.member()
    head.until(lambda: head.received, "the hello")
    before, open_before = resident(), descriptors_open()
    long_frame = bytes([LONG_COMMAND]) + struct.pack(">Q", parts.PART_BYTES) + bytes(parts.PART_BYTES - 1)
    kinds = [(b"",), (GREETING[:10],), (GREETING,), (GREETING, long_frame)]
    strangers = [head.raw(*kinds[number % len(kinds)]) for number in range(CONNECTIONS)]
    member.send(envelope.encode(Pong(1)))
    head.until(lambda: len(head.received) == 2, "the member's message")
    another = head.member(hello_of("w00000002"))
    head.until(lambda: len(head.received) == 3, "the hello of another member")
    assert resident() - before < 2 * CONNECTIONS * parts.MAX_FRAME_BYTES
    open_ones = list(strangers)

    def all_over() -> bool:
        open_ones[:] = [each for each in open_ones if not is_over(each)]
        return not open_ones

    head.until(all_over, "all are ended", 60.0)
    for each in strangers:
        each.close()
    assert not another.ended
    head.until(lambda: descriptors_open() <= open_before + 10, "no descriptor is left", 60.0)
