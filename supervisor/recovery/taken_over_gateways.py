"""The gateways of an earlier supervisor: what they wait for, and what they must know of the workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from protocol.ids import RequestKey
from protocol.messages.peers import Hello, WorkerUp
from protocol.messages.recovery import GatewaySnapshot, Recovered
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.bus.sockets import SupervisorBus
from supervisor.peers.handshake import OtherGateways
from supervisor.peers.peer_exit import GatewayEnds
from supervisor.processes.gateway_process import GatewayProcess
from supervisor.scheduler.recovery.joined_snapshots import to_be_submitted


class TakenOverGateways:
    """The gateways that outlived a supervisor, on this machine and elsewhere."""

    def __init__(
        self,
        bus: SupervisorBus,
        peers: PeerRegistry,
        processes: GatewayProcess,
        ends: GatewayEnds,
        elsewhere: OtherGateways | None,
    ) -> None:
        """None has reported yet. ``processes``: those on this machine. ``elsewhere``: None on a server on one machine."""
        self._bus, self._peers, self._processes, self._ends, self._elsewhere = bus, peers, processes, ends, elsewhere
        self.snapshots: dict[str, GatewaySnapshot] = {}
        """What those have reported that have done so."""

    def takes_part(self, peer: str, hello: Hello, on_ended: Callable[[str], None]) -> bool:
        """Take the Hello of a gateway, or of the host of some; return whether it is a gateway of this server.

        ``on_ended`` gets the name of a gateway elsewhere when it has ended.
        """
        if not hello.node:
            return True
        return self._elsewhere is not None and self._elsewhere.hello(peer, hello, on_ended)

    def joined(self, hello: Hello, on_ended: Callable[[str], None]) -> str:
        """Take a gateway of this machine; return the name by which it was adopted."""
        return self._processes.joined(hello, on_ended)

    def report(self, gateway: str, snapshot: GatewaySnapshot) -> set[RequestKey]:
        """Note what a gateway waits for; return the attempts that it will submit."""
        self.snapshots[gateway] = snapshot
        self._processes.worker_up(gateway)
        return to_be_submitted({gateway: snapshot})

    def forget(self, gateway: str) -> None:
        """Forget what a gateway has reported: it has ended, or begins anew."""
        self.snapshots.pop(gateway, None)

    def ended(self, gateway: str) -> None:
        """End what a gateway that has ended had begun."""
        self._ends.gone(gateway)

    def tell(self, workers: Sequence[str], endpoint: Callable[[str, str], str], nodes: Sequence[str]) -> None:
        """Tell each gateway which workers live, and which nodes besides the head are in the server.

        ``endpoint``: of a worker, for a gateway on a node; empty if it is not known.
        """
        for gateway in self.snapshots:
            for worker in workers:
                if found := endpoint(worker, self._peers.node_of(gateway)):
                    self._bus.send(gateway, WorkerUp(worker, found, self._peers.node_of(worker)))
            self._bus.send(gateway, Recovered(list(workers), list(nodes)))
