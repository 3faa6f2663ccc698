"""``/internal/nodes``: what an administrator sees of the machines, and drains; health names nodes only if there are several."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from protocol.messages.health import GetHealth
from protocol.messages.node_reports import DrainNode, ListNodes, NodeReport, NodesReport, NodeState
from protocol.models.memory import Capacity
from protocol.models.nodes import NodeFacts
from tests.gateway.api.supervisor_reports import HEALTH
from tests.gateway.app_client import AppClient

NODE = NodeReport(
    NodeFacts("gpu2", "10.0.0.2", 8, ["nvidia_gpu"], {"zone": "west"}, {"npu": 1.0}, ["llamacpp:cuda"]),
    NodeState.DRAINING,
    2.0,
    [Capacity("host", 64, 8, "/ai.slice")],
    ["new", "secret"],
    3,
    True,
)
SHOWN = {
    "name": "gpu2",
    "state": "draining",
    "age_seconds": 2.0,
    "address": "10.0.0.2",
    "cpus": 8,
    "devices": ["nvidia_gpu"],
    "backends": ["llamacpp:cuda"],
    "labels": {"zone": "west"},
    "resources": {"npu": 1.0},
    "memory": [
        {
            "place": "host",
            "name": "",
            "total_bytes": 64,
            "free_bytes": 8,
            "limited_by": "/ai.slice",
            "utilization_percent": None,
            "age_seconds": 0.0,
        }
    ],
    "models": ["new", "secret"],
    "workers": 3,
    "drained": True,
    "reason": "",
}
USER, ADMIN = "k" * 32, "a" * 32


@pytest.fixture
def ask(tmp_path: Path) -> AppClient:
    return AppClient(tmp_path, api_key=USER, admin_api_key=ADMIN)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_an_administrator_lists_and_drains_nodes(ask: AppClient) -> None:
    ask.reports |= {ListNodes: NodesReport([NODE]), DrainNode: NODE}
    assert ask("GET", "/internal/nodes", headers=bearer(ADMIN)).json == {"nodes": [SHOWN]}
    for path, drained in (("drain", True), ("undrain", False)):
        answer = ask("POST", f"/internal/nodes/gpu2/{path}", headers=bearer(ADMIN))
        assert (answer.status_code, answer.json) == (200, SHOWN)
        asked = ask.asked(DrainNode)[-1]
        assert (asked.node, asked.drained) == ("gpu2", drained)


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("POST", "/gpu2/drain"), ("POST", "/gpu2/undrain")],
    ids=["list", "drain", "undrain"],
)
def test_others_do_not(ask: AppClient, method: str, path: str) -> None:
    assert ask(method, f"/internal/nodes{path}").status_code == 401
    assert ask(method, f"/internal/nodes{path}", headers=bearer(USER)).status_code == 403
    assert not ask.asked(DrainNode)


def test_health_has_the_nodes_without_what_only_administrators_see(ask: AppClient) -> None:
    ask.reports[GetHealth] = structs.replace(HEALTH, nodes=[NODE])
    assert ask("GET", "/v1/health", headers=bearer(ADMIN)).json["lemonbus"]["nodes"] == [SHOWN]
    (seen,) = ask("GET", "/v1/health", headers=bearer(USER)).json["lemonbus"]["nodes"]
    assert seen == {**SHOWN, "address": "", "memory": [{**SHOWN["memory"][0], "limited_by": ""}]}  # type: ignore[index]


def test_the_health_of_one_machine_names_no_node(ask: AppClient) -> None:
    ask.reports[GetHealth] = HEALTH
    body = ask("GET", "/v1/health", headers=bearer(ADMIN)).json
    assert "nodes" not in body["lemonbus"]
    assert not any("node" in each for each in (*body["all_models_loaded"], *body["lemonbus"]["models"]))
