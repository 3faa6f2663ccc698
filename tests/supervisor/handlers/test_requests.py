"""What gateways hear of attempts that their workers have cancelled."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from protocol.failures import Code
from protocol.messages.peers import Peer
from protocol.messages.work import AttemptEnded, Refused
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.handlers.requests import InferenceRequests
from supervisor.runtime.gateway_calls import GatewayCalls

PARTS = "loop models targets scheduler internal_calls admission accounting metrics stats record"


@pytest.mark.parametrize("node", ["", "gpu1"])
@pytest.mark.parametrize(
    ("code", "gateway", "count"),
    [
        (Code.GATEWAY_GONE, "g1", 1),
        (Code.GATEWAY_GONE, "g2", 0),
        (Code.CANCELLED, "g1", 0),
        ("", "g1", 0),
    ],
)
def test_a_gateway_that_lives_is_told_of_an_attempt_that_was_cut_off(
    code: str, gateway: str, count: int, node: str
) -> None:
    bus, peers = Mock(), PeerRegistry(10.0)
    peers.add(Peer("gateway", "g1", 1, "edge1"), 0.0)
    peers.add(Peer("worker", "w1", 2, node), 0.0)
    parts: dict[str, Any] = {name: Mock() for name in PARTS.split()}
    parts["loop"].now.return_value = 1.0
    parts["scheduler"].attempt_ended.return_value = None
    requests = InferenceRequests(**parts, calls=GatewayCalls(bus, peers, Mock()))
    requests.handlers()[AttemptEnded]("w1", AttemptEnded(gateway, 7, 2, code), b"")
    refusals = [(call.args[0], call.args[1]) for call in bus.send.call_args_list]
    assert len(refusals) == count
    for peer, message in refusals:
        assert isinstance(message, Refused)
        assert (peer, message.number, message.attempt, message.failure.code) == ("g1", 7, 2, Code.LOST)
        assert f"node {node or 'head'}, where" in message.failure.message
