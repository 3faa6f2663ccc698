"""Slots that are lent: when, to whom, and how many."""

from __future__ import annotations

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.work import Ask, Cancel
from supervisor.board import Target
from supervisor.places import CLOSELY_S
from tests.supervisor.lent import lease, lent, loaded
from tests.supervisor.stage import spec
from tests.supervisor.world import World


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


def test_a_request_without_a_name_is_lent_nothing(world: World) -> None:
    for number in (901, 902):
        key = RequestKey("g1", number, 1)
        world.live[key] = "a"
        world.scheduler.asked(
            key, Ask(number, 1, "", "completions", "l"), b"", Target("a", "llm", spec("a")), world.now
        )
        world.settle(light=True)
    assert lease(world) is None


def test_what_is_known_to_run_counts_as_running(world: World) -> None:
    lent(world)
    worker = world.serving("a")
    key = world.use_lease(worker, "g1")
    assert world.scheduler.running == 0
    world.tell_lease(worker, "g1")
    assert world.scheduler.running == 1
    world.finish(key)
    assert world.scheduler.running == 0


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
