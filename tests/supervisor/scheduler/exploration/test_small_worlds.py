"""Whatever happens in a small world, and in whatever order: what must hold does, and every request is answered."""

from __future__ import annotations

import pytest

from protocol.models.nodes import HEAD
from tests.supervisor.scheduler.exploration.explorer import ViolationError, explore
from tests.supervisor.scheduler.exploration.small_worlds import SmallWorld, WorldPlan

WORLDS = {
    "nothing fails": (WorldPlan("aba"), 200),
    "an engine dies": (WorldPlan("ab", faults=("engine dies",)), 300),
    "a load fails": (WorldPlan("ab", faults=("load fails",)), 200),
    "a worker dies": (WorldPlan("ab", faults=("worker dies",)), 300),
    "a client leaves": (WorldPlan("ab", faults=("client leaves",)), 200),
    "a node is lost and is back": (WorldPlan("ab", faults=("node is lost", "node is back")), 500),
    "a node drains and is used again": (WorldPlan("ab", faults=("node drains", "drain ends")), 500),
    "memory for one model on each node": (WorldPlan("ab", memory=1000, faults=("engine dies",)), 300),
    "a pinned model": (WorldPlan("aba", memory=1000, pinned="a"), 40),
    "one machine": (WorldPlan("aba", nodes=(HEAD,), faults=("engine dies",)), 200),
}
"""Worlds, and how many states each has at least: fewer would mean that something cannot happen any more."""


@pytest.mark.parametrize("world", WORLDS)
def test_whatever_happens_what_must_hold_does_and_every_request_is_answered(world: str) -> None:
    plan, least = WORLDS[world]
    assert explore(plan, most_states=5000).states >= least


def test_a_violation_names_the_shortest_history_that_leads_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_world(self: SmallWorld) -> None:
        assert not self.ended, "nothing may ever end"

    monkeypatch.setattr(SmallWorld, "check_world", check_world)
    with pytest.raises(ViolationError) as caught:
        explore(WorldPlan("a", nodes=(HEAD,)), most_states=1000)
    assert "nothing may ever end" in str(caught.value)
    assert "after\n  submit\n" in str(caught.value)
    assert str(caught.value).endswith("  finish 1")


def test_a_world_that_is_too_large_is_not_explored_in_part() -> None:
    with pytest.raises(ViolationError, match="more than 20 states"):
        explore(WorldPlan("aba"), most_states=20)
