"""Slots that are lent: when, how many, and how they come back."""

from __future__ import annotations

import pytest

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.leases import Recall, Used
from protocol.work import Ask, Cancel
from supervisor.board import Target
from supervisor.lending import CALM_PAUSES, LONGEST_PAUSE_S, RECALL_PAUSE_S
from supervisor.places import CLOSELY_S
from tests.supervisor.stage import spec
from tests.supervisor.worker import Lease
from tests.supervisor.world import World


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


def lent(world: World, gateway: str = "g1", slots: int = 4) -> Lease:
    """Let a gateway ask for so much at once, and end it, until that is lent."""
    world.finish(world.ask("a", gateway))
    keys: list[RequestKey] = []
    while (found := lease(world, gateway)) is None or found.slots < slots:
        keys.append(world.ask("a", gateway))
        assert len(keys) <= slots
    for key in keys:
        world.finish(key)
    return found


def test_a_request_now_and_then_is_lent_nothing(world: World) -> None:
    for _ in range(3):
        world.finish(world.ask("a"))
        world.pass_time(2 * CLOSELY_S)
    assert lease(world) is None


def test_the_slots_of_a_request_that_follows_closely_stay_with_its_gateway(world: World) -> None:
    world.finish(world.ask("a"))
    assert lease(world) is None
    key = world.ask("a")
    found = lease(world)
    assert found is not None
    assert (found.slots, found.runs) == (1, {key: 1})
    assert world.scheduler.places["a"].busy == 1, "others may have as much as before"
    world.finish(key)
    assert world.scheduler.places["a"].busy == 1
    assert world.scheduler.running == 0


def test_a_lease_grows_with_what_its_gateway_has_under_way_at_once(world: World) -> None:
    world.finish(world.ask("a"))
    keys = [world.ask("a", weight=weight) for weight in (1, 2, 1)]
    found = lease(world)
    assert found is not None
    assert found.runs == dict(zip(keys, (1, 2, 1), strict=True))
    assert found.slots == 4
    assert world.scheduler.running == 4


def test_one_slot_always_stays(world: World) -> None:
    world.finish(world.ask("a"))
    keys = [world.ask("a") for _ in range(8)]
    found = lease(world)
    assert found is not None
    assert found.slots == 7
    assert set(world.scheduler.places["a"].grants) == {keys[7]}
    for key in keys:
        world.finish(key)
    world.ask("a", "g2")
    assert world.scheduler.settled, "whoever asks need not wait for the lease's end"


def test_two_slots_are_never_lent() -> None:
    world = World(1, 2)
    world.finish(loaded(world, "a"))
    for _ in range(5):
        world.finish(world.ask("a"))
    assert lease(world) is None


def test_a_lease_is_good_for_another_endpoint_even_if_there_is_no_more_to_lend(world: World) -> None:
    found = lent(world, slots=7)
    for endpoint in ("completions", "embeddings"):
        key = world.ask("a", endpoint=endpoint)
        assert key in world.scheduler.places["a"].grants, "what it has may have room for the next one"
        world.finish(key)
    assert found.slots == 7
    assert {endpoint for _, endpoint in found.names} == {"chat/completions", "completions", "embeddings"}


def test_a_known_name_that_is_asked_for_needs_more(world: World) -> None:
    found = lent(world, slots=2)
    world.finish(world.ask("a", endpoint="completions"))
    assert found.slots == 2
    world.finish(world.ask("a", endpoint="completions"))
    assert found.slots == 3


def test_what_was_tried_before_is_lent_nothing(world: World) -> None:
    world.finish(world.ask("a"))
    key = RequestKey("g1", 903, 2)
    world.live[key] = "a"
    world.scheduler.asked(key, Ask(903, 2, "a", "chat/completions", "l"), b"", Target("a", "llm", spec("a")), world.now)
    world.settle(light=True)
    assert key in world.scheduler.places["a"].grants


def test_who_hangs_up_before_it_hears_of_its_lease_reaches_the_worker(world: World) -> None:
    world.finish(world.ask("a"))
    key = world.ask("a")
    world.cancel(key)
    cancels = [each for each in world.workers[world.serving("a")].told if isinstance(each, Cancel)]
    assert [each.number for each in cancels] == [key.number]
    world.finish(key, Code.CANCELLED)
    assert world.scheduler.running == 0


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
