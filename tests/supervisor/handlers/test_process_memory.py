"""Whose memory `/metrics` adds up by role: processes of this machine, and those that a placement has started elsewhere."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from protocol.messages.peers import Peer
from protocol.models.nodes import HEAD
from supervisor.handlers.metrics import ServerSnapshots

PEERS = [
    Peer("gateway", "g1", 7),
    Peer("worker", "w1", 8),
    Peer("worker", "w2", 8, "gpu2"),
    Peer("agent", "a1", 7, "gpu2"),
    Peer("gateway", "g2", 7, "edge"),
]


def test_a_pid_of_another_machine_is_not_looked_up_here() -> None:
    asked: list[str] = []
    processes: Any = Mock(server_age=lambda: 1.0, node_of=lambda name: "gpu2" if name == "w2" else HEAD)
    processes.resident_bytes = lambda name, pid: asked.append(name) or 100 + pid
    record = Mock(ready=True, drained=False)
    view: Any = Mock(models=list)
    snapshots = ServerSnapshots(
        peers=lambda: PEERS,
        processes=processes,
        known=lambda _name: None,
        view=view,
        counters=Mock(internal_errors=0),
        record=record,
        loads=list,
        failed=list,
        key_expiries=dict,
        key_limits=list,
        machine=Mock(),
        nodes=Mock(several=list),
        batches=lambda: None,
    )
    sizes = dict(snapshots.take([], []).process_bytes)
    del sizes["supervisor"]
    assert sizes == {"gateway": 107, "worker": 216}
    assert asked == ["g1", "w1", "w2", ""]
