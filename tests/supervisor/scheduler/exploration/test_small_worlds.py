"""Whatever happens in a small world, and in whatever order: what must hold does, and every request is answered."""

from __future__ import annotations

import pytest

from protocol.models.nodes import HEAD
from tests.supervisor.scheduler.exploration.explorer import ViolationError, explore
from tests.supervisor.scheduler.exploration.small_worlds import FAULTS, SmallWorld, WorldPlan
from tests.supervisor.scheduler.exploration.worlds import WORLDS


@pytest.mark.timeout(600)  # some take ten seconds, and much longer on a busy machine
@pytest.mark.parametrize("name", WORLDS)
def test_whatever_happens_what_must_hold_does_and_every_request_is_answered(name: str) -> None:
    world = WORLDS[name]
    assert explore(world.plan, 20_000, rests_without=world.rests_without).states >= world.least


def test_each_kind_of_fault_happens_in_some_world() -> None:
    assert {fault for world in WORLDS.values() for fault in world.plan.faults} == set(FAULTS)


def test_a_violation_names_the_shortest_history_that_leads_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_all(self: SmallWorld) -> None:
        assert not self.ended, "nothing may ever end"

    monkeypatch.setattr(SmallWorld, "check_all", check_all)
    monkeypatch.setattr(SmallWorld, "check_at_rest", lambda *_: None)
    with pytest.raises(ViolationError) as caught:
        explore(WorldPlan("a", nodes=(HEAD,), faults=()), 1000)
    assert "nothing may ever end" in str(caught.value)
    assert "after\n  submit\n" in str(caught.value)
    assert str(caught.value).endswith("  finish 1")


def test_a_world_that_is_too_large_is_not_explored_in_part() -> None:
    with pytest.raises(ViolationError, match="more than 20 states"):
        explore(WorldPlan(), 20)
