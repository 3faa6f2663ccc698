"""Histories of requests, loads and unloads for the scheduler: who runs, who waits, who must leave."""

from __future__ import annotations

import pytest

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.staff import Load
from protocol.work import Ask
from supervisor.lifecycle import State
from supervisor.places import differs
from tests.supervisor.stage import spec
from tests.supervisor.world import World, loaded


def test_a_request_for_an_unloaded_model_loads_it_and_runs() -> None:
    world = World()
    key = world.ask("a")
    world.calm()
    assert world.order == [key]
    world.finish(key)
    assert world.scheduler.granted == 0


def test_requests_beyond_the_slots_wait_in_order() -> None:
    world = loaded("a")
    keys = [world.ask("a") for _ in range(5)]
    assert world.order == keys[:2]
    world.finish(keys[1])
    assert world.order == keys[:3]


def test_a_heavy_request_is_not_overtaken() -> None:
    world = loaded("a")
    light = world.ask("a")
    heavy = world.ask("a", weight=2)
    behind = world.ask("a")
    assert world.order == [light]
    world.finish(light)
    assert world.order == [light, heavy]
    world.finish(heavy)
    assert world.order == [light, heavy, behind]


def test_an_idle_model_leaves_for_another() -> None:
    world = loaded("a")
    key = world.ask("b")
    world.calm()
    assert world.order == [key]
    assert world.scheduler.places.get("a") is None


def test_a_busy_model_ends_its_stream_first_and_later_ones_wait_behind() -> None:
    world = loaded("a")
    stream = world.ask("a")
    for_b = world.ask("b")
    second = world.ask("a")
    world.calm()
    assert world.order == [stream]
    assert world.of_state(State.DRAINING) == [world.serving("a")]
    world.finish(stream)
    world.calm()
    assert world.order == [stream, for_b]
    world.finish(for_b)
    world.calm()
    assert world.order == [stream, for_b, second]


def test_the_second_waits_even_while_the_other_is_only_being_checked() -> None:
    world = loaded("a")
    stream = world.ask("a")
    world.ask("b")
    world.ask("a")
    assert world.order == [stream]


def test_whoever_waited_before_the_other_asked_is_served_first() -> None:
    world = loaded("a")
    first = [world.ask("a") for _ in range(4)]
    other = world.ask("b")
    world.calm()
    for key in first:
        world.finish(key)
    world.calm()
    assert world.order == [*first, other]


def test_a_load_serves_everybody_who_waited_for_it() -> None:
    world = loaded("a")
    stream = world.ask("a")
    for_b = [world.ask("b") for _ in range(2)]
    again = world.ask("a")
    late = [world.ask("b") for _ in range(2)]
    world.finish(stream)
    world.calm()
    for key in [*for_b, *late]:
        assert key in world.order
        world.finish(key)
    world.calm()
    assert world.order == [stream, *for_b, *late, again]


def test_a_read_that_was_returned_is_told_so() -> None:
    world = loaded("a")
    key = RequestKey("g1", 700, 1)
    world.scheduler.read(key, Ask(700, 1, "a", "slots", "label", 0), b"", world.scheduler.places["a"])
    world.scheduler.effects()
    world.scheduler.idle(key, "returned", world.now)
    world.settle()
    assert world.refusals[key].code is Code.RETURNED


def test_pinned_models_stay_and_are_named() -> None:
    world = World()
    world.load("a", 500, pinned=True)
    world.calm()
    key = world.ask("b")
    assert world.refusals[key].code is Code.ALL_PINNED
    assert "a" in world.refusals[key].message
    assert world.of_state(State.READY)


def test_a_full_queue_refuses_with_an_estimate() -> None:
    world = loaded("a", queue_requests=3)
    for _ in range(5):
        world.ask("a")
    key = world.ask("a")
    assert world.refusals[key].code is Code.OVERLOADED
    assert world.refusals[key].retry_after >= 1.0


@pytest.mark.parametrize("seconds", [2.0, 6.0, 90.0])
@pytest.mark.parametrize("most", [3, 12])
def test_the_estimate_is_measured_service_time_times_those_ahead(seconds: float, most: int) -> None:
    world = loaded("a", queue_requests=most)
    for _ in range(3):
        key = world.ask("a")
        world.pass_time(seconds)
        world.finish(key)
    slots = world.scheduler.places["a"].slots
    ahead = [world.ask("a") for _ in range(slots + most)]
    told = world.refusals[world.ask("a")].retry_after
    assert told == pytest.approx(seconds * len(ahead) / slots)


def test_a_queue_full_of_bytes_refuses() -> None:
    world = loaded("a", queue_bytes=100)
    for _ in range(3):
        world.ask("a", size=90)
    assert world.refusals[world.ask("a", size=90)].code is Code.OVERLOADED


def test_a_cancelled_grant_ends_with_idle_not_with_the_cancel() -> None:
    world = loaded("a")
    key = world.ask("a")
    world.cancel(key)
    assert world.scheduler.granted == 1
    world.finish(key, Code.CANCELLED)
    assert world.scheduler.granted == 0


def test_who_hangs_up_leaves_the_queue() -> None:
    world = loaded("a")
    keys = [world.ask("a") for _ in range(3)]
    world.cancel(keys[2])
    assert world.scheduler.queued == 0


def test_load_is_idempotent_and_reloads_for_other_options() -> None:
    world = loaded("a")
    worker = world.serving("a")
    world.load("a", 700)
    assert ("g1", 700) in world.reports
    stream = world.ask("a")
    world.load("a", 701, options={"ctx_size": 8192})
    world.calm()
    assert ("g1", 701) not in world.reports
    assert world.serving("a") == worker
    world.finish(stream)
    world.calm()
    assert ("g1", 701) in world.reports
    assert world.serving("a") != worker
    loads = [told for told in world.workers[world.serving("a")].told if isinstance(told, Load)]
    assert loads[-1].spec.options == {"ctx_size": 8192}


def test_unload_lets_the_stream_end_and_answers_when_it_is_gone() -> None:
    world = loaded("a")
    stream = world.ask("a")
    assert world.unload("a")
    world.calm()
    assert ("g1", 901) not in world.reports
    world.finish(stream)
    world.calm()
    assert world.reports["g1", 901] == ["a"]
    assert not world.unload("a", 902)


@pytest.mark.parametrize("places", [1, 2])
def test_unloading_while_loading_tells_who_waited(places: int) -> None:
    world = World(places)
    key = world.ask("a")
    while not world.of_state(State.LOADING):
        assert world.advance()
    assert world.unload("a")
    assert world.refusals[key].code is Code.UNLOADED


def test_two_claimants_get_two_victims() -> None:
    world = loaded("a", "b", places=2)
    streams = [world.ask("a"), world.ask("b")]
    wants = [world.ask("c"), world.ask("d")]
    world.calm()
    assert len(world.of_state(State.DRAINING)) == 2
    for stream in streams:
        world.finish(stream)
    world.calm()
    assert world.order == [*streams, *wants]


def test_a_drain_is_called_off_when_another_place_comes_free() -> None:
    world = loaded("a", "b", places=2)
    on_a, on_b = world.ask("a"), world.ask("b")
    world.ask("c")
    assert world.of_state(State.DRAINING) == [world.serving("a")]
    world.finish(on_b)
    world.calm()
    assert world.scheduler.places["a"].seat is not None
    assert world.scheduler.places["a"].seat.state is State.READY
    assert on_a not in world.ended


def test_closing_refuses_who_waits_and_lets_run_what_runs() -> None:
    world = loaded("a")
    running = [world.ask("a"), world.ask("a")]
    waiting = world.ask("a")
    world.scheduler.close()
    world.settle()
    assert world.refusals[waiting].code is Code.DRAINING
    assert world.refusals[world.ask("a")].code is Code.DRAINING
    for key in running:
        world.finish(key)
    world.calm()
    assert not world.of_state(State.READY, State.DRAINING)


def test_memory_evicts_idle_models_and_counts_what_they_give_back() -> None:
    world = loaded("a", "b", places=3)
    for model in ("a", "b"):
        world.scheduler.seats[world.serving(model)].memory = 600
    key = world.ask("c")
    world.checked(world.of_state(State.CHECKING)[0], need=500, available=100)
    world.calm()
    assert key in world.order
    assert world.scheduler.places.get("a") is None
    assert world.scheduler.places["b"].seat is not None


def test_specs_that_differ_only_in_bookkeeping_are_the_same_engine() -> None:
    assert not differs(spec("a"), spec("a", pinned=True, size=3))
    assert differs(spec("a"), spec("a", options={"ctx_size": 1}))


def test_an_end_that_is_told_late_makes_its_model_not_the_one_used_last() -> None:
    world = loaded("a", "b", places=2)
    key = world.ask("a")
    world.pass_time(1.0)
    world.load("b", 801)
    world.now += 0.008
    world.finish(key)
    latest = world.scheduler.latest(lambda _place: True)
    assert latest is not None
    assert latest.name == "b"


def test_to_load_what_is_loaded_is_a_use_of_it() -> None:
    world = loaded("a", "b", places=2)
    world.pass_time(1.0)
    world.load("a", 801)
    assert world.scheduler.used() == ["a", "b"]
    waiting = world.ask("c")
    world.calm()
    assert waiting in world.order
    assert world.scheduler.places.get("b") is None


def test_what_was_used_last_is_known_when_it_is_gone() -> None:
    world = loaded("a", "b", places=2)
    world.pass_time(1.0)
    world.finish(world.ask("b"))
    world.unload("b", 801)
    world.calm()
    assert "b" not in world.scheduler.places
    assert world.scheduler.used() == ["b", "a"]
    world.pass_time(1.0)
    world.load("a", 802)
    assert world.scheduler.used() == ["a", "b"]
    world.scheduler.forget_use("b")
    assert world.scheduler.used() == ["a"]
