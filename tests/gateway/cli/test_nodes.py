"""``lemonbus nodes``, ``nodes drain`` and ``nodes undrain``."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from gateway.api.common.node_entries import node_entry
from gateway.cli import polling
from gateway.cli.main import cli
from protocol.messages.node_reports import NodeReport, NodeState
from protocol.models.memory import HOST, Capacity
from protocol.models.nodes import NodeFacts
from tests.gateway.cli.conftest import Ends
from tests.gateway.fake_server import FakeServer, Reply

LIST = ("GET", "/internal/nodes")
DRAIN, UNDRAIN = ("POST", "/internal/nodes/gpu2/drain"), ("POST", "/internal/nodes/gpu2/undrain")
GPU2 = NodeFacts(
    "gpu2", address="10.0.0.2", cpus=8, devices=["nvidia_gpu"], backends=["command:command", "llamacpp:cuda"]
)
MEMORY = [Capacity(HOST, 64 * 10**9, 8 * 10**9), Capacity("GPU-1", 24 * 10**9, 2 * 10**9, name="Card")]


def node(state: str, *models: str, drained: bool = True, **more: Any) -> dict[str, Any]:
    """The node gpu2, as the server's own code shows it."""
    report = NodeReport(GPU2, NodeState(state), 70.0, models=list(models), drained=drained, **more)
    shown: dict[str, Any] = msgspec.to_builtins(node_entry(report, detail=True))
    return shown


def listed(*nodes: dict[str, Any]) -> Reply:
    return Reply({"nodes": list(nodes)})


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "INTERVAL_S", 0.001)


def test_the_table_says_what_each_node_has_and_which_are_lost(server: FakeServer, lemonbus: Ends) -> None:
    lost = node("lost") | {"name": "gpu3", "memory": [], "devices": []}
    server.replies[LIST] = listed(node("ready", "a", "b", drained=False, memory=MEMORY), lost)
    code, out, _ = lemonbus("nodes")
    assert (code, [line.split() for line in out.splitlines()]) == (
        0,
        [
            ["NODE", "STATE", "FOR", "MODELS", "DEVICES", "MEMORY", "FREE", "ADDRESS", "BACKENDS"],
            [
                "gpu2",
                "ready",
                "1",
                "min",
                "2",
                "nvidia_gpu",
                "host",
                "8.0",
                "GB,",
                "Card",
                "2.0",
                "GB",
                "10.0.0.2",
                "llamacpp:cuda",
            ],
            ["gpu3", "lost,", "drained", "1", "min", "-", "-", "-", "10.0.0.2", "llamacpp:cuda"],
        ],
    )
    assert [each["name"] for each in json.loads(lemonbus("nodes", "--json")[1])] == ["gpu2", "gpu3"]


def test_a_drain_waits_until_no_model_is_left_and_says_which_are(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[DRAIN] = Reply(node("draining", "a", "b"))
    answers = [node("draining", "a", "b"), node("draining", "b"), node("drained")]
    server.replies[LIST] = lambda _body: listed(answers.pop(0))
    code, out, err = lemonbus("nodes", "drain", "gpu2")
    assert (code, out) == (0, "Node gpu2 gets no new models; it has none left.\n")
    assert err.splitlines() == ["Node gpu2: it still has a, b", "Node gpu2: it still has b"]
    assert answers == []


def test_a_drain_without_waiting_says_what_is_left(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[DRAIN] = Reply(node("draining", "a"))
    assert lemonbus("nodes", "drain", "gpu2", "--no-wait") == (0, "Node gpu2 gets no new models; it still has a.\n", "")
    assert lemonbus("nodes", "drain", "gpu2", "--no-wait", "--timeout", "3")[0] == 2
    assert len(server.asked) == 1


def test_it_gives_up_after_the_timeout_and_the_node_stays_drained(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[DRAIN] = Reply(node("draining", "a"))
    server.replies[LIST] = listed(node("draining", "a"))
    code, out, err = lemonbus("nodes", "drain", "gpu2", "--timeout", "0.05")
    assert (code, out) == (1, "")
    assert "after 0.05 s, node gpu2 still has a; it stays drained" in err
    assert UNDRAIN not in {each[:2] for each in server.asked}


def test_an_interrupted_wait_says_that_the_node_stays_drained(
    server: FakeServer, lemonbus: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "time", Mock(sleep=Mock(side_effect=KeyboardInterrupt)))
    server.replies[DRAIN] = Reply(node("draining", "a"))
    code, _, err = lemonbus("nodes", "drain", "gpu2")
    assert code == 130
    assert "the node stays drained until `lemonbus nodes undrain gpu2`" in err


@pytest.mark.parametrize(
    ("end", "code", "text"),
    [
        ([node("lost")], 0, "Node gpu2 is not reachable, and stays drained when it comes back."),
        ([], 0, "Node gpu2 is not reachable, and stays drained when it comes back."),
        ([node("ready", "a", drained=False)], 1, "the node gpu2 was undrained meanwhile"),
    ],
)
def test_the_wait_ends_when_the_node_does(
    server: FakeServer, lemonbus: Ends, end: list[dict[str, Any]], code: int, text: str
) -> None:
    server.replies[DRAIN] = Reply(node("draining", "a"))
    server.replies[LIST] = listed(*end)
    ended, out, err = lemonbus("nodes", "drain", "gpu2")
    assert (ended, text in out + err) == (code, True)


def test_an_undrain_says_what_the_node_does_then(server: FakeServer, lemonbus: Ends) -> None:
    server.replies[UNDRAIN] = Reply(node("ready", drained=False))
    assert lemonbus("nodes", "undrain", "gpu2") == (0, "Node gpu2 gets models again.\n", "")
    assert json.loads(lemonbus("nodes", "undrain", "gpu2", "--json")[1])["state"] == "ready"


def test_names_of_nodes_are_completed(server: FakeServer) -> None:
    server.replies[LIST] = listed(node("ready"), node("ready") | {"name": "head"})
    nodes: Any = cli.get_command(Mock(), "nodes")
    for subcommand in ("drain", "undrain"):
        argument = nodes.commands[subcommand].params[0]
        context = Mock(params={}, obj=server.url)
        assert [each.value for each in argument.shell_complete(context, "g")] == ["gpu2"]
