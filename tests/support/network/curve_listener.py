"""A supervisor's ROUTER that the test itself reads and writes, for peers on this node and, with CURVE, on others."""

from __future__ import annotations

from pathlib import Path

import zmq

from protocol.runtime.loop import Loop
from protocol.wire import curve
from protocol.wire.bus_address import BusAddress, ClusterMembership, MemberKeys
from protocol.wire.bus_connection import RemoteConnection
from tests.support.waiting import wait_for

KEYS = curve.new_cluster_keys()


class CurveListener:
    """Both listeners of the ROUTER. It admits members of :data:`KEYS`."""

    def __init__(self, runtime: Path, host: str = "127.0.0.1") -> None:
        self.runtime = runtime
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.check = curve.PeerCheck(self.context, KEYS.member)
        self.router = self.context.socket(zmq.ROUTER)
        self.router.bind(BusAddress(runtime).control)
        curve.listen(self.router, f"tcp://{host}:*", KEYS.supervisor)
        self.port = int(self.router.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])
        self.host = host

    def address(self, keys: MemberKeys | None = None, through: str = "") -> BusAddress:
        """Return its address for a peer with these keys on another node. ``through``: a link to it."""
        membership = ClusterMembership(through or f"{self.host}:{self.port}", keys or KEYS.of_member())
        return BusAddress(self.runtime, membership, remote=True)

    def received(self) -> list[bytes]:
        """Wait for a message, and return its frames."""
        wait_for(lambda: self.check.answer() or self.router.poll(20), "a message")
        return self.router.recv_multipart()

    def settled(self, connection: RemoteConnection) -> bool:
        """Return whether a connection to it was made or refused."""
        self.check.answer()
        connection.look()
        return connection.connected or connection.ended

    def send_and_end(self, peer: bytes, message: bytes) -> None:
        """Send a last message, and end as a supervisor does: at once, with a moment for what was not sent."""
        self.router.send_multipart([peer, message])
        self.router.close(1000)
        self.check.close()

    def close(self) -> None:
        self.context.destroy(0)


def only_end_noticed(loop: Loop, connection: RemoteConnection) -> None:
    """Let a message and the end of its connection arrive; then let the loop call back for the end alone."""
    wait_for(lambda: connection.dealer.poll(0) and connection.monitor.poll(0), "the message and the end have arrived")
    loop.on_socket(connection.dealer, None)
    loop.used(int(connection.monitor.FD))
    loop.run_once(1.0)
