"""When agents are started, and what nodes are called."""

from __future__ import annotations

import pytest

from workers.jobs.ray_cluster.agent_plan import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    STABLE_S,
    AgentPlan,
    ClusterNode,
)


def node(number: int = 1, *, ray_name: str = "", hostname: str = "", address: str = "") -> ClusterNode:
    address = address or f"10.0.0.{number}"
    return ClusterNode(f"{number:056x}", address, ray_name or address, hostname or f"host{number}", {}, {"CPU": 1.0})


def due(plan: AgentPlan, now: float) -> list[str]:
    return [agent.node.id for agent in plan.due(now)]


def start(plan: AgentPlan, which: ClusterNode, now: float) -> None:
    plan.starting(which.id, now)
    plan.runs(which.id)


def test_an_agent_is_started_once_on_each_new_node() -> None:
    plan, first, second = AgentPlan(), node(1), node(2)
    plan.nodes_seen([first], 5.0)
    assert due(plan, 5.0) == [first.id]
    plan.starting(first.id, 5.0)
    plan.nodes_seen([first, second], 6.0)
    assert due(plan, 6.0) == [second.id]
    start(plan, second, 6.0)
    assert due(plan, 1e9) == []


def test_an_agent_that_ends_soon_is_started_again_after_pauses_that_grow() -> None:
    plan, one = AgentPlan(), node()
    plan.nodes_seen([one], 0.0)
    now, pauses = 0.0, []
    for _ in range(9):
        start(plan, one, now)
        plan.ended(one.id, "it broke", now + 0.5)
        (agent,) = plan.agents.values()
        assert (agent.running, agent.problem) == (False, "it broke")
        assert agent.due is not None
        assert due(plan, agent.due - 0.01) == []
        pauses.append(agent.due - (now + 0.5))
        now = agent.due
        assert due(plan, now) == [one.id]
    assert pauses[:4] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S, 8 * FIRST_PAUSE_S]
    assert pauses[-1] == LONGEST_PAUSE_S


def test_an_agent_that_ran_for_long_is_started_again_at_once() -> None:
    plan, one = AgentPlan(), node()
    plan.nodes_seen([one], 0.0)
    for _ in range(5):
        plan.ended(one.id, "it broke", 0.0)
    start(plan, one, 100.0)
    plan.ended(one.id, "it broke", 100.0 + STABLE_S)
    assert due(plan, 100.0 + STABLE_S) == [one.id]
    start(plan, one, 200.0)
    plan.ended(one.id, "it broke", 201.0)
    assert due(plan, 201.0 + FIRST_PAUSE_S) == [one.id]
    assert due(plan, 200.9 + FIRST_PAUSE_S) == []


def test_one_that_never_ran_is_not_stable_however_long_ray_took() -> None:
    plan, one = AgentPlan(), node()
    plan.nodes_seen([one], 0.0)
    plan.starting(one.id, 0.0)
    plan.waits(one.id, "Ray waits")
    plan.ended(one.id, "it cannot be started", 10 * STABLE_S)
    assert due(plan, 10 * STABLE_S) == []


def test_a_node_that_is_gone_is_forgotten_with_its_pause() -> None:
    plan, one = AgentPlan(), node()
    plan.nodes_seen([one], 0.0)
    plan.starting(one.id, 0.0)
    plan.nodes_seen([], 1.0)
    plan.ended(one.id, "its actor has ended", 1.0)
    assert plan.agents == {}
    plan.nodes_seen([one], 2.0)
    assert due(plan, 2.0) == [one.id]


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        ([node(1), node(2)], ["host1", "host2"]),
        ([node(1, hostname="vm"), node(2, hostname="vm")], ["10.0.0.1", "10.0.0.2"]),
        ([node(1, ray_name="gpu-1"), node(2)], ["gpu-1", "host2"]),
        ([node(1, ray_name="gpu"), node(2, ray_name="gpu")], ["10.0.0.1", "10.0.0.2"]),
        ([node(1, address="fd00::1", hostname="vm"), node(2, hostname="vm")], ["fd00-1", "10.0.0.2"]),
        ([node(1, ray_name="a b/ü")], ["a-b"]),
        ([node(1, ray_name="same"), node(2, hostname="same")], ["same", "same-00000000"]),
        ([node(1, hostname="x" * 80)], ["x" * 63]),
    ],
)
def test_names(nodes: list[ClusterNode], names: list[str]) -> None:
    plan = AgentPlan()
    plan.nodes_seen(nodes, 0.0)
    assert [agent.name for agent in plan.agents.values()] == names


def test_a_machine_that_has_started_ray_again_is_one_node_of_the_same_name() -> None:
    """Ray still shows the former node for some seconds."""
    plan, former, present = AgentPlan(), node(1), node(2, address="10.0.0.1", hostname="host1")
    plan.nodes_seen([former], 0.0)
    start(plan, former, 0.0)
    for now in (1.0, 2.0):
        plan.nodes_seen([former, present], now)
        assert [(agent.node.id, agent.name) for agent in plan.agents.values()] == [(present.id, "host1")]
    plan.nodes_seen([present], 3.0)
    assert due(plan, 3.0) == [present.id]


def test_a_node_keeps_its_name_while_it_lives() -> None:
    plan = AgentPlan()
    plan.nodes_seen([node(1, hostname="vm")], 0.0)
    plan.nodes_seen([node(1, hostname="vm"), node(2, hostname="vm")], 1.0)
    assert [agent.name for agent in plan.agents.values()] == ["vm", "10.0.0.2"]


def test_custom_resources_are_those_that_the_operator_has_declared() -> None:
    resources = {"CPU": 4.0, "GPU": 1.0, "memory": 1.0, "object_store_memory": 1.0, "node:10.0.0.1": 1.0, "npu": 2.0}
    assert node()._replace(resources=resources).custom_resources == {"npu": 2.0}


def test_a_node_where_ray_is_about_to_end_gets_no_other_agent() -> None:
    plan, first = AgentPlan(), node(1)
    plan.nodes_seen([first], 0.0)
    plan.starting(first.id, 0.0)
    plan.runs(first.id)
    plan.nodes_seen([first._replace(draining=True)], 100.0)
    assert plan.draining() == [first.id]
    plan.ended(first.id, "its agent ended with exit code 0", 100.0)
    assert plan.due(1000.0) == []
    plan.nodes_seen([first], 1001.0)
    assert (plan.draining(), [agent.node for agent in plan.due(1001.0)]) == ([], [first])
