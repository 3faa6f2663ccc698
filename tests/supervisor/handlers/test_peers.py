"""What a job is told when it says Hello: its order, or that the server ends."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import Mock, call

import pytest

from protocol.messages.peers import Hello, Shutdown
from protocol.messages.recovery import JobSnapshot
from protocol.wire import envelope
from supervisor.handlers.peers import PeerMessages

JOB = Hello("job", "j1", 7, "boot")


def peer_messages(parts: Mock) -> PeerMessages:
    return PeerMessages(
        loop=parts.loop,
        bus=parts.bus,
        peers=parts.peers,
        workers=parts.workers,
        gateway=parts.gateway,
        jobs=parts.jobs,
        scheduler=parts.scheduler,
        admission=parts.admission,
        accounting=parts.accounting,
        gateway_ends=parts.gateway_ends,
        other_versions=parts.other_versions,
        handshake=parts.handshake,
        monitor=parts.monitor,
    )


@pytest.mark.parametrize(
    ("closing", "order", "sent", "ordered"),
    [
        pytest.param(False, b"", [], [call("j1")], id="a new job"),
        pytest.param(False, b"x", [], [], id="one that has its order"),
        pytest.param(
            True, b"", [call("j1", Shutdown(0.0, "draining"))], [], id="one that was starting when the server ended"
        ),
    ],
)
def test_a_job_gets_its_order_unless_the_server_ends(
    closing: bool, order: bytes, sent: list[object], ordered: list[object]
) -> None:
    parts = Mock(scheduler=SimpleNamespace(view=SimpleNamespace(closing=closing)))
    parts.jobs.names.return_value = ["j1"]
    peer_messages(parts).handlers()[Hello]("j1", JOB, envelope.pack_payload(JobSnapshot(order)))
    assert parts.bus.send.mock_calls == sent
    assert parts.jobs.send_order.mock_calls == ordered
