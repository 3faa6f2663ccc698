"""A peer on another node and the end of its supervisor: what this said last is read, whichever is noticed first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import zmq

from protocol.runtime.loop import Loop
from protocol.wire import curve, frames
from protocol.wire.bus_address import MemberKeys
from protocol.wire.bus_connection import ON_OTHER_NODE, SupervisorDealer
from tests.support.network.curve_listener import KEYS, CurveListener, only_end_noticed
from tests.support.waiting import wait_for

PEER = b"w00000001"


class PeerOnOtherNode:
    """A dealer, its loop, and what it has noticed."""

    def __init__(self, head: CurveListener, keys: MemberKeys) -> None:
        self.loop = Loop()
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.noticed: list[str] = []
        self.supervisor = SupervisorDealer(
            self.context, head.address(keys), PEER, self.loop.watch, self._read, lambda: self.noticed.append("end")
        )
        self.supervisor.on_refused = lambda: self.noticed.append("refused")

    def _read(self) -> None:
        if self.supervisor.dealer is not None:
            self.noticed += [frame.decode() for frame in frames.receive_each(self.supervisor.dealer)]

    def close(self) -> None:
        self.supervisor.close()
        self.context.term()
        self.loop.close()


@pytest.fixture
def head(tmp_path: Path) -> Iterator[CurveListener]:
    with closing(CurveListener(tmp_path)) as made:
        yield made


@pytest.fixture
def peer(head: CurveListener) -> Iterator[PeerOnOtherNode]:
    with closing(PeerOnOtherNode(head, KEYS.of_member())) as made:
        yield made


def test_the_last_message_is_read_even_if_the_end_is_noticed_first(head: CurveListener, peer: PeerOnOtherNode) -> None:
    wait_for(lambda: head.check.answer() or peer.supervisor.find() == ON_OTHER_NODE, "a connection")
    dealer = peer.supervisor.open()
    assert frames.send(dealer, b"hello")
    route, hello = head.received()
    assert hello == b"hello"
    head.send_and_end(route, b"last")
    assert peer.supervisor._connection is not None
    only_end_noticed(peer.loop, peer.supervisor._connection)
    assert peer.noticed == ["last", "end"]
    peer.supervisor.look()
    assert peer.noticed == ["last", "end"], "each end is told once"
    assert peer.supervisor.is_broken()


def test_a_refusal_is_told_and_another_connection_is_made(head: CurveListener) -> None:
    strangers = MemberKeys(KEYS.supervisor.public, curve.new_cluster_keys().member)
    with closing(PeerOnOtherNode(head, strangers)) as peer:
        for count in (1, 2):

            def refused(count: int = count) -> bool:
                head.check.answer()
                assert peer.supervisor.find() == 0
                return peer.noticed == ["refused"] * count

            wait_for(refused, "it is refused")
