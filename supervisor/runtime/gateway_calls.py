"""The answers to the calls of gateways: a report, or the failure that refuses the call."""

from __future__ import annotations

from protocol.failures import Code, Failure, write_failure
from protocol.ids import RequestKey
from protocol.messages.calls import CallResult, Progress
from protocol.messages.work import Refused
from protocol.models.nodes import HEAD
from protocol.wire import envelope
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.bus.sockets import SupervisorBus
from supervisor.persistence.state_writer import StateWriter


class GatewayCalls:
    """Answers calls: each is known by its gateway and its number there. ``state_writer`` knows what is on the disk."""

    def __init__(self, bus: SupervisorBus, peers: PeerRegistry, state_writer: StateWriter) -> None:
        self._bus, self._peers, self._state_writer = bus, peers, state_writer

    def answer(self, gateway: str, number: int, report: object) -> None:
        """Answer a call."""
        self._bus.send(gateway, CallResult(number), envelope.pack_payload(report))

    def answer_when_written(self, gateway: str, number: int, report: object, if_not: str = "") -> None:
        """Answer a call that changed a state file once the change is on the disk; refuse it if that failed.

        ``if_not``: what is true then, for the end of the message.
        """

        def written(problem: OSError | None) -> None:
            if self._peers.get(gateway) is None:
                return
            if problem is None:
                self.answer(gateway, number, report)
            else:
                reason = f"the change could not be written: {problem.strerror}{if_not}"
                self.refuse(gateway, number, write_failure(problem, reason))

        self._state_writer.when_written(written)

    def reply(self, gateway: str, number: int, result: object, *, when_written: bool = False) -> None:
        """Answer a call that has waited, with a report or a failure, unless its gateway is gone.

        ``when_written``: hold back a report until the changed state files are on the disk.
        """
        if self._peers.get(gateway) is None:
            return
        if isinstance(result, Failure):
            self.refuse(gateway, number, result)
        elif when_written:
            self.answer_when_written(gateway, number, result)
        else:
            self.answer(gateway, number, result)

    def attempt_cut_off(self, key: RequestKey, worker: str) -> None:
        """Refuse an attempt that its worker has cancelled because the connection to the gateway broke, unless that is gone.

        The gateway may have learnt where the attempt runs only after it had noticed the break, and would wait for ever.
        """
        if self._peers.get(key.gateway) is not None:
            node = self._peers.node_of(worker) or HEAD
            failure = Failure(Code.LOST, f"the connection to node {node}, where the model runs, is broken")
            self._bus.send(key.gateway, Refused(key.number, key.attempt, failure))

    def tell(self, gateway: str, progress: Progress) -> None:
        """Tell a call that waits how far its job is, unless its gateway is gone."""
        if self._peers.get(gateway) is not None:
            self._bus.send(gateway, progress)

    def refuse(self, gateway: str, number: int, failure: Failure) -> None:
        """Refuse a call."""
        self._bus.send(gateway, Refused(number, 0, failure))
