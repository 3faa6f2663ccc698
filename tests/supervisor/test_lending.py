"""Slots that are lent: when, how many, and how they come back."""

from __future__ import annotations

import pytest

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.leases import Recall, Used
from protocol.work import Ask, Cancel
from supervisor.board import Target
from supervisor.lending import LEND_PAUSE_S
from supervisor.places import CLOSELY_S
from supervisor.turns import RECALL_PAUSE_S
from tests.supervisor.world import Lease, World, spec


@pytest.fixture
def world() -> World:
    """A quiet house with one model of eight slots, used a while ago."""
    world = World(2, 8)
    world.finish(loaded(world, "a"))
    world.pass_time(10 * CLOSELY_S)
    return world


def loaded(world: World, model: str) -> object:
    key = world.ask(model)
    world.calm()
    return key


def lease(world: World, gateway: str = "g1") -> Lease | None:
    return world.workers[world.serving("a")].leases.get(gateway)


def lent(world: World, gateway: str = "g1") -> Lease:
    """Let a gateway ask until it is lent something."""
    world.finish(world.ask("a", gateway))
    world.finish(world.ask("a", gateway))
    found = lease(world, gateway)
    assert found is not None
    return found


def test_a_request_now_and_then_is_lent_nothing(world: World) -> None:
    for _ in range(3):
        world.finish(world.ask("a"))
        world.pass_time(2 * CLOSELY_S)
    assert lease(world) is None


def test_when_a_request_that_followed_closely_has_ended_half_of_what_is_free_is_lent(world: World) -> None:
    world.finish(world.ask("a"))
    key = world.ask("a")
    assert lease(world) is None
    world.finish(key)
    found = lease(world)
    assert found is not None
    assert found.slots == 4


def test_nothing_is_lent_while_most_slots_are_in_use(world: World) -> None:
    keys = [world.ask("a") for _ in range(8)]
    for key in keys[:3]:
        world.finish(key)
        assert lease(world) is None, "those that come now have been asked for already"
    world.finish(keys[3])
    found = lease(world)
    assert found is not None
    assert found.slots == 2


def test_what_failed_is_no_reason_to_lend(world: World) -> None:
    world.finish(world.ask("a"))
    world.finish(world.ask("a"), Code.BACKEND_ERROR)
    assert lease(world) is None


def test_more_is_lent_only_after_a_moment_and_one_slot_always_stays() -> None:
    world = World(1, 3)
    world.finish(loaded(world, "a"))
    found = lent(world)
    assert found.slots == 1
    world.finish(world.ask("a"))
    assert found.slots == 1
    for _ in range(4):
        world.pass_time(LEND_PAUSE_S)
        world.finish(world.ask("a"))
        assert found.slots == 2
    assert world.scheduler.places["a"].busy == 2
    world.ask("a", "g2")
    assert world.scheduler.settled, "whoever asks need not wait for the lease's end"


def test_a_lease_is_good_for_another_endpoint_even_if_there_is_no_more_to_lend(world: World) -> None:
    found = lent(world)
    world.pass_time(LEND_PAUSE_S)
    keys = [world.ask("a", "g2") for _ in range(3)]
    world.finish(world.ask("a", endpoint="completions"))
    assert found.slots == 4
    assert {endpoint for _, endpoint in world.scheduler.places["a"].leases["g1"].names} == {
        "chat/completions",
        "completions",
    }
    assert all(key in world.live for key in keys)


def test_two_slots_are_never_lent() -> None:
    world = World(1, 2)
    world.finish(loaded(world, "a"))
    for _ in range(5):
        world.finish(world.ask("a"))
    assert lease(world) is None


def test_a_request_without_a_name_is_lent_nothing(world: World) -> None:
    for number in (901, 902):
        key = RequestKey("g1", number, 1)
        world.live[key] = "a"
        world.scheduler.asked(
            key, Ask(number, 1, "", "completions", "l"), b"", Target("a", "llm", spec("a")), world.now
        )
        world.settle(light=True)
    assert lease(world) is None


def test_whoever_waits_gets_what_was_lent_and_is_not_used(world: World) -> None:
    lent(world)
    keys = [world.ask("a", "g2") for _ in range(4)]
    running = world.workers[world.serving("a")].running
    assert set(keys) <= set(running)
    late = world.ask("a", "g2")
    assert late not in running
    assert [type(each) for each in world.workers[world.serving("a")].recalls] == [Recall]
    world.calm()
    assert late in running
    assert lease(world) is None


def test_what_runs_under_a_lease_keeps_its_slots_when_the_lease_ends(world: World) -> None:
    lent(world)
    worker = world.serving("a")
    straight = [world.use_lease(worker, "g1") for _ in range(4)]
    assert world.use_lease(worker, "g1") is None
    world.end_lease(worker, "g1")
    place = world.scheduler.places["a"]
    assert set(place.grants) == set(straight)
    assert place.busy == 4
    for key in straight:
        world.finish(key)
    assert place.busy == 0


def test_nothing_is_lent_again_for_a_moment(world: World) -> None:
    lent(world)
    for _ in range(8):
        world.ask("a", "g2")
    world.calm()
    while world.workers[world.serving("a")].running:
        world.finish(world.workers[world.serving("a")].running[0])
    world.finish(world.ask("a"))
    world.finish(world.ask("a"))
    assert lease(world) is None
    world.pass_time(RECALL_PAUSE_S)
    lent(world)


def test_what_is_known_to_run_counts_as_running(world: World) -> None:
    lent(world)
    worker = world.serving("a")
    key = world.use_lease(worker, "g1")
    assert world.scheduler.running == 0
    world.tell_lease(worker, "g1")
    assert world.scheduler.running == 1
    world.finish(key)
    assert world.scheduler.running == 0


def test_a_model_that_makes_room_waits_for_its_leases() -> None:
    world = World(1, 8)
    world.finish(loaded(world, "a"))
    lent(world)
    worker = world.serving("a")
    straight = world.use_lease(worker, "g1")
    world.ask("b")
    world.calm()
    assert world.scheduler.places["b"].seat is None or not world.scheduler.places["b"].seat.serves
    world.finish(straight)
    world.calm()
    assert world.serving("b")


def test_a_gateway_that_is_gone_keeps_nothing(world: World) -> None:
    lent(world)
    worker = world.serving("a")
    key = world.use_lease(worker, "g1")
    world.gateway_dies("g1")
    world.calm()
    cancels = [each for each in world.workers[worker].told if isinstance(each, Cancel)]
    assert [(each.number, each.reason) for each in cancels] == [(key.number, Code.GATEWAY_GONE)]
    world.finish(key)
    assert world.scheduler.granted == 0


def test_what_is_said_of_a_lease_that_is_over_changes_nothing(world: World) -> None:
    old = lent(world)
    worker = world.serving("a")
    world.end_lease(worker, "g1")
    before = dict(world.scheduler.places["a"].grants)
    world.scheduler.lease_ended(worker, "g1", old.number, [Used(77, 1, 1)], world.now)
    world.scheduler.lease_used(worker, "g1", old.number, [Used(77, 1, 1)])
    world.scheduler.lease_used("nobody", "g1", old.number, [Used(77, 1, 1)])
    assert world.scheduler.places["a"].grants == before
    assert world.scheduler.running == 0


def test_a_request_under_a_lease_keeps_its_turn_when_its_engine_dies(world: World) -> None:
    old = lent(world)
    worker = world.serving("a")
    straight = world.use_lease(worker, "g1")
    world.tell_lease(worker, "g1")
    world.engine_dies(worker)
    assert world.scheduler.places["a"].returning == {("g1", straight.number): old.number}


def test_what_a_worker_did_not_take_is_bound_by_the_queue() -> None:
    world = World(1, 8, queue_requests=1)
    for _ in range(2):
        world.ask("a")
    key = RequestKey("g1", 903, 2)
    for new in (True, False):
        world.live[key] = "a"
        ask = Ask(903, 2, "a", "completions", "l", new=new)
        world.scheduler.asked(key, ask, b"", Target("a", "llm", spec("a")), world.now)
        world.settle(light=True)
        assert (world.refusals.pop(key, None) is not None) == new
        world.ended.clear()


def test_an_engine_takes_its_leases_with_it(world: World) -> None:
    lent(world)
    worker = world.serving("a")
    world.use_lease(worker, "g1")
    world.engine_dies(worker)
    assert world.scheduler.granted == 0
    world.calm()
    assert world.serving("a") == worker
