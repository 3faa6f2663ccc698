"""Leases: when they are issued, to whom, and how many."""

from __future__ import annotations

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.messages.work import Cancel, SubmitRequest
from supervisor.scheduler.scheduled_model import BURST_WINDOW_S
from supervisor.scheduler.state import ModelTarget
from tests.supervisor.effect_player import spec
from tests.supervisor.lease_setup import issue_leases, lease_of, load_by_request
from tests.supervisor.simulation import Simulation


def test_a_request_now_and_then_is_lent_nothing(sim: Simulation) -> None:
    for _ in range(3):
        sim.finish(sim.submit("a"))
        sim.pass_time(2 * BURST_WINDOW_S)
    assert lease_of(sim) is None


def test_the_slots_of_a_request_that_follows_closely_stay_with_its_gateway(sim: Simulation) -> None:
    sim.finish(sim.submit("a"))
    assert lease_of(sim) is None
    key = sim.submit("a")
    found = lease_of(sim)
    assert found is not None
    assert (found.slots, found.runs) == (1, {key: 1})
    assert sim.scheduler.models["a"].busy == 1, "others may have as much as before"
    sim.finish(key)
    assert sim.scheduler.models["a"].busy == 1
    assert sim.scheduler.running == 0


def test_a_lease_grows_with_what_its_gateway_has_under_way_at_once(sim: Simulation) -> None:
    sim.finish(sim.submit("a"))
    keys = [sim.submit("a", weight=weight) for weight in (1, 2, 1)]
    found = lease_of(sim)
    assert found is not None
    assert found.runs == dict(zip(keys, (1, 2, 1), strict=True))
    assert found.slots == 4
    assert sim.scheduler.running == 4


def test_one_slot_is_never_lent(sim: Simulation) -> None:
    sim.finish(sim.submit("a"))
    keys = [sim.submit("a") for _ in range(8)]
    found = lease_of(sim)
    assert found is not None
    assert found.slots == 7
    assert set(sim.scheduler.models["a"].grants) == {keys[7]}
    for key in keys:
        sim.finish(key)
    sim.submit("a", "g2")
    assert sim.scheduler.settled, "another gateway need not wait for the lease's end"


def test_two_slots_are_never_lent() -> None:
    sim = Simulation(1, 2)
    sim.finish(load_by_request(sim, "a"))
    for _ in range(5):
        sim.finish(sim.submit("a"))
    assert lease_of(sim) is None


def test_a_lease_is_good_for_another_endpoint_even_if_there_is_no_more_to_lease(sim: Simulation) -> None:
    found = issue_leases(sim, slots=7)
    for endpoint in ("completions", "embeddings"):
        key = sim.submit("a", endpoint=endpoint)
        assert key in sim.scheduler.models["a"].grants, "its slots may be free for the next one"
        sim.finish(key)
    assert found.slots == 7
    assert {endpoint for _, endpoint in found.names} == {"chat/completions", "completions", "embeddings"}


def test_a_known_name_that_is_asked_for_needs_more(sim: Simulation) -> None:
    found = issue_leases(sim, slots=2)
    sim.finish(sim.submit("a", endpoint="completions"))
    assert found.slots == 2
    sim.finish(sim.submit("a", endpoint="completions"))
    assert found.slots == 3


def test_a_retry_is_lent_nothing(sim: Simulation) -> None:
    sim.finish(sim.submit("a"))
    key = RequestKey("g1", 903, 2)
    sim.live[key] = "a"
    sim.scheduler.request_submitted(
        key, SubmitRequest(903, 2, "a", "chat/completions", "l"), b"", ModelTarget("a", "llm", spec("a")), sim.now
    )
    sim.settle(light=True)
    assert key in sim.scheduler.models["a"].grants


def test_a_hang_up_before_the_lease_message_reaches_the_worker(sim: Simulation) -> None:
    sim.finish(sim.submit("a"))
    key = sim.submit("a")
    sim.cancel(key)
    cancels = [each for each in sim.workers[sim.serving("a")].commands if isinstance(each, Cancel)]
    assert [each.number for each in cancels] == [key.number]
    sim.finish(key, Code.CANCELLED)
    assert sim.scheduler.running == 0


def test_a_request_without_a_name_is_lent_nothing(sim: Simulation) -> None:
    for number in (901, 902):
        key = RequestKey("g1", number, 1)
        sim.live[key] = "a"
        sim.scheduler.request_submitted(
            key, SubmitRequest(number, 1, "", "completions", "l"), b"", ModelTarget("a", "llm", spec("a")), sim.now
        )
        sim.settle(light=True)
    assert lease_of(sim) is None


def test_reported_attempts_count_as_running(sim: Simulation) -> None:
    issue_leases(sim)
    worker = sim.serving("a")
    key = sim.use_lease(worker, "g1")
    assert sim.scheduler.running == 0
    sim.report_lease_use(worker, "g1")
    assert sim.scheduler.running == 1
    sim.finish(key)
    assert sim.scheduler.running == 0


def test_requests_that_a_worker_refused_are_bound_by_the_queue() -> None:
    sim = Simulation(1, 8, queue_requests=1)
    for _ in range(2):
        sim.submit("a")
    key = RequestKey("g1", 903, 2)
    for new in (True, False):
        sim.live[key] = "a"
        ask = SubmitRequest(903, 2, "a", "completions", "l", new=new)
        sim.scheduler.request_submitted(key, ask, b"", ModelTarget("a", "llm", spec("a")), sim.now)
        sim.settle(light=True)
        assert (sim.refusals.pop(key, None) is not None) == new
        sim.ended.clear()
