"""Slots that were lent: how they come back, and what becomes of what runs on them."""

from __future__ import annotations

from protocol.failures import Code
from protocol.leases import Recall, Used
from protocol.work import Cancel
from supervisor.lending import CALM_PAUSES, LONGEST_PAUSE_S, RECALL_PAUSE_S
from tests.supervisor.lent import lease, lent, loaded
from tests.supervisor.world import World


def test_what_ended_before_its_worker_heard_of_its_lease_is_not_running(world: World) -> None:
    world.finish(world.ask("a"))
    key = world.ask("a")
    worker = world.serving("a")
    assert world.scheduler.lease_idle(worker, key, 0.0, world.now, under=False) is not None
    assert world.scheduler.running == 0
    assert world.scheduler.lease_idle(worker, key, 0.0, world.now, under=False) is None, "as a read's end"


def test_what_came_too_late_for_a_lease_keeps_its_slots(world: World) -> None:
    old = lent(world)
    worker = world.serving("a")
    world.end_lease_unheard(worker, "g1")
    key = world.ask("a")
    assert lease(world) is None
    world.say_ends(worker)
    assert {each: grant.weight for each, grant in world.scheduler.places["a"].grants.items()} == {key: 1}
    assert world.scheduler.places["a"].grants[key].order == old.number
    world.finish(key)
    assert world.scheduler.granted == 0


def test_whoever_waits_gets_what_was_lent_and_is_not_used(world: World) -> None:
    lent(world)
    keys = [world.ask("a", "g2") for _ in range(4)]
    running = world.workers[world.serving("a")].running
    assert set(keys) <= set(running)
    late = world.ask("a", "g2")
    assert late not in running
    assert [type(each) for each in world.workers[world.serving("a")].recalls] == [Recall, Recall]
    assert world.scheduler.counters["recalls"] == 1
    world.calm()
    assert late in running
    assert lease(world) is None
    assert lease(world, "g2") is None


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


def recalled(world: World) -> None:
    """Let more be asked for than there is, and let all of it end."""
    lent(world)
    for _ in range(9):
        world.ask("a", "g2")
    world.calm()
    while world.workers[world.serving("a")].running:
        world.finish(world.workers[world.serving("a")].running[0])
    assert not world.scheduler.places["a"].leases


def test_nothing_is_lent_again_for_a_moment_and_for_longer_each_time(world: World) -> None:
    pause = RECALL_PAUSE_S
    for _ in range(8):
        recalled(world)
        world.pass_time(0.9 * pause)
        world.finish(world.ask("a"))
        world.finish(world.ask("a"))
        assert lease(world) is None
        world.pass_time(0.2 * pause)
        pause = min(LONGEST_PAUSE_S, 2 * pause)
    lent(world)


def test_after_a_calm_while_the_pause_is_short_again(world: World) -> None:
    for _ in range(4):
        recalled(world)
        world.pass_time(LONGEST_PAUSE_S)
    world.pass_time(CALM_PAUSES * LONGEST_PAUSE_S)
    recalled(world)
    world.pass_time(RECALL_PAUSE_S)
    lent(world)


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


def test_an_engine_takes_its_leases_with_it(world: World) -> None:
    lent(world)
    worker = world.serving("a")
    world.use_lease(worker, "g1")
    world.engine_dies(worker)
    assert world.scheduler.granted == 0
    world.calm()
    assert world.serving("a") == worker
