"""``system-stats`` as Lemonade shows it, and what a server of several machines adds."""

from __future__ import annotations

from protocol.messages.node_reports import NodeReport, NodeState
from protocol.messages.system_info import GetSystemStats, MachineUsage
from protocol.models.memory import HOST, Capacity
from protocol.models.nodes import HEAD, NodeFacts
from tests.gateway.app_client import AppClient

GIB = 1 << 30


def test_a_value_that_is_unknown_is_null(ask: AppClient) -> None:
    ask.reports[GetSystemStats] = MachineUsage(None, 3 * GIB, None, None, [Capacity(HOST, 8 * GIB, 5 * GIB, "/slice")])
    answer = ask("GET", "/api/v1/system-stats").json
    (host,) = answer.pop("memory")
    assert (host["place"], host["free_bytes"]) == (HOST, 5 * GIB)
    assert answer == {
        "cpu_percent": None,
        "memory_gb": 3.0,
        "gpu_percent": None,
        "vram_gb": None,
        "npu_percent": None,
    }


def test_several_machines_are_shown_one_by_one(ask: AppClient) -> None:
    card = Capacity("0000:01:00.0", 80 * GIB, 20 * GIB, used_percent=71.0)
    others = [
        NodeReport(NodeFacts(HEAD), NodeState.READY),
        NodeReport(NodeFacts("b"), NodeState.READY, memory=[Capacity(HOST, 64 * GIB, 60 * GIB), card]),
        NodeReport(NodeFacts("c"), NodeState.LOST),
    ]
    ask.reports[GetSystemStats] = MachineUsage(12.34, GIB, 93.0, GIB // 2, [], others)
    answer = ask("GET", "/v1/system-stats").json
    assert (answer["cpu_percent"], answer["vram_gb"]) == (12.3, 0.5)
    head, second, lost = answer["nodes"]
    assert (head["node"], head["cpu_percent"], head["gpu_percent"]) == (HEAD, 12.3, 93.0)
    assert second == {
        **dict.fromkeys(("cpu_percent", "npu_percent")),
        "node": "b",
        "state": "ready",
        "memory_gb": 4.0,
        "gpu_percent": 71.0,
        "vram_gb": 60.0,
    }
    assert (lost["state"], lost["memory_gb"], lost["vram_gb"]) == ("lost", None, None)
