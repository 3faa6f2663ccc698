"""Which requests run and which wait, as operators are shown them."""

from __future__ import annotations

from tests.supervisor.scheduler.simulation import Simulation, loaded


def test_those_that_run_come_before_those_that_wait() -> None:
    sim = loaded("a")
    running = [sim.submit("a", caller="ci") for _ in range(sim.slots)]
    sim.pass_time(2.0)
    waiting = [sim.submit("a", gateway="g2", caller="team") for _ in range(2)]
    views = sim.scheduler.view.requests_in_flight(10)
    assert [each.key for each in views] == [*running, *waiting]
    assert [(each.model, each.api_key) for each in views] == [*[("a", "ci")] * sim.slots, *[("a", "team")] * 2]
    assert [each.granted_at is None for each in views] == [*[False] * sim.slots, True, True]
    assert [each.position for each in views] == [*[0] * sim.slots, 1, 2]
    assert all(each.wait_s > 0 for each in views[sim.slots :])
    assert {each.since for each in views[sim.slots :]} == {sim.now}
    facts = views[0].facts
    assert facts is not None
    assert (facts.label, facts.endpoint) == ("label", "chat/completions")


def test_the_one_that_arrived_first_comes_first_whatever_its_model() -> None:
    sim = loaded("a", "b", models=2)
    keys = []
    for name in ("b", "a", "b"):
        keys.append(sim.submit(name))
        sim.pass_time(1.0)
    assert [each.key for each in sim.scheduler.view.requests_in_flight(10)] == keys


def test_there_are_not_more_than_asked_for() -> None:
    sim = loaded("a")
    running = [sim.submit("a") for _ in range(sim.slots)]
    waiting = [sim.submit("a") for _ in range(20)]
    view = sim.scheduler.view
    assert [each.key for each in view.requests_in_flight(sim.slots + 3)] == [*running, *waiting[:3]]
    assert [each.key for each in view.requests_in_flight(1)] == running[:1]
    (share,) = view.waiting_shares("a", 3)
    assert (share.api_key, share.requests) == ("", 20), "all are counted"


def test_a_key_that_is_far_behind_has_no_estimate() -> None:
    sim = loaded("a")
    for _ in range(sim.slots + 4):
        sim.submit("a", caller="first")
    sim.submit("a", caller="late")
    view = sim.scheduler.view
    estimates = {each.api_key: each.wait_s for each in view.waiting_shares("a", 1)}
    assert estimates["first"] > 0
    assert estimates["late"] == 0
    assert all(each.wait_s > 0 for each in view.waiting_shares("a", 200))


def test_an_attempt_is_found_by_gateway_and_number_until_it_ends() -> None:
    sim = loaded("a")
    running = [sim.submit("a") for _ in range(sim.slots)]
    waiting = sim.submit("a", gateway="g2")
    view = sim.scheduler.view
    for key in (*running, waiting):
        assert view.attempt_of(key.gateway, key.number) == key
    assert view.attempt_of("g2", running[0].number) is None
    sim.cancel(waiting)
    assert view.attempt_of(waiting.gateway, waiting.number) is None
    sim.finish(running[0])
    assert view.attempt_of("g1", running[0].number) is None


def test_nothing_is_in_flight_in_the_beginning() -> None:
    assert Simulation().scheduler.view.requests_in_flight(5) == []
