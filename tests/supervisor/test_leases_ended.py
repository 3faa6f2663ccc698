"""Leases: how they end, and what becomes of what runs on them."""

from __future__ import annotations

from protocol.failures import Code
from protocol.messages.leases import LeasedAttempt, RevokeLease
from protocol.messages.work import Cancel
from supervisor.scheduler.leases import FIRST_LEASE_PAUSE_S, MAX_PAUSE_S, PAUSES_UNTIL_RESET
from tests.supervisor.lease_setup import issue_leases, lease_of, load_by_request
from tests.supervisor.simulation import Simulation


def test_an_attempt_that_ended_before_its_lease_message_arrived_is_not_running(sim: Simulation) -> None:
    sim.finish(sim.submit("a"))
    key = sim.submit("a")
    worker = sim.serving("a")
    assert sim.scheduler.leased_attempt_ended(worker, key, 0.0, sim.now, under=False) is not None
    assert sim.scheduler.running == 0
    assert sim.scheduler.leased_attempt_ended(worker, key, 0.0, sim.now, under=False) is None, "as a read's end"


def test_an_attempt_that_came_too_late_for_a_lease_keeps_its_slots(sim: Simulation) -> None:
    old = issue_leases(sim)
    worker = sim.serving("a")
    sim.end_lease_unreported(worker, "g1")
    key = sim.submit("a")
    assert lease_of(sim) is None
    sim.report_ended_leases(worker)
    assert {each: grant.weight for each, grant in sim.scheduler.models["a"].grants.items()} == {key: 1}
    assert sim.scheduler.models["a"].grants[key].order == old.number
    sim.finish(key)
    assert sim.scheduler.granted == 0


def test_waiting_requests_get_unused_leased_slots(sim: Simulation) -> None:
    issue_leases(sim)
    keys = [sim.submit("a", "g2") for _ in range(4)]
    running = sim.workers[sim.serving("a")].running
    assert set(keys) <= set(running)
    late = sim.submit("a", "g2")
    assert late not in running
    assert [type(each) for each in sim.workers[sim.serving("a")].revocations] == [RevokeLease, RevokeLease]
    assert sim.scheduler.counters["leases_revoked"] == 1
    sim.run_until_idle()
    assert late in running
    assert lease_of(sim) is None
    assert lease_of(sim, "g2") is None


def test_leased_attempts_keep_their_slots_when_the_lease_ends(sim: Simulation) -> None:
    issue_leases(sim)
    worker = sim.serving("a")
    leased = [sim.use_lease(worker, "g1") for _ in range(4)]
    assert sim.use_lease(worker, "g1") is None
    sim.end_lease(worker, "g1")
    model = sim.scheduler.models["a"]
    assert set(model.grants) == set(leased)
    assert model.busy == 4
    for key in leased:
        sim.finish(key)
    assert model.busy == 0


def revoked(sim: Simulation) -> None:
    """Let more be asked for than there is, and let all of it end."""
    issue_leases(sim)
    for _ in range(9):
        sim.submit("a", "g2")
    sim.run_until_idle()
    while sim.workers[sim.serving("a")].running:
        sim.finish(sim.workers[sim.serving("a")].running[0])
    assert not sim.scheduler.models["a"].leases


def test_the_pause_after_a_revocation_doubles(sim: Simulation) -> None:
    pause = FIRST_LEASE_PAUSE_S
    for _ in range(8):
        revoked(sim)
        sim.pass_time(0.9 * pause)
        sim.finish(sim.submit("a"))
        sim.finish(sim.submit("a"))
        assert lease_of(sim) is None
        sim.pass_time(0.2 * pause)
        pause = min(MAX_PAUSE_S, 2 * pause)
    issue_leases(sim)


def test_the_pause_is_short_again_after_a_quiet_time(sim: Simulation) -> None:
    for _ in range(4):
        revoked(sim)
        sim.pass_time(MAX_PAUSE_S)
    sim.pass_time(PAUSES_UNTIL_RESET * MAX_PAUSE_S)
    revoked(sim)
    sim.pass_time(FIRST_LEASE_PAUSE_S)
    issue_leases(sim)


def test_an_eviction_waits_for_leases() -> None:
    sim = Simulation(1, 8)
    sim.finish(load_by_request(sim, "a"))
    issue_leases(sim)
    worker = sim.serving("a")
    leased = sim.use_lease(worker, "g1")
    sim.submit("b")
    sim.run_until_idle()
    assert sim.scheduler.models["b"].process is None or not sim.scheduler.models["b"].process.serves
    sim.finish(leased)
    sim.run_until_idle()
    assert sim.serving("b")


def test_a_gateway_that_is_gone_keeps_nothing(sim: Simulation) -> None:
    issue_leases(sim)
    worker = sim.serving("a")
    key = sim.use_lease(worker, "g1")
    sim.gateway_dies("g1")
    sim.run_until_idle()
    cancels = [each for each in sim.workers[worker].commands if isinstance(each, Cancel)]
    assert [(each.number, each.reason) for each in cancels] == [(key.number, Code.GATEWAY_GONE)]
    sim.finish(key)
    assert sim.scheduler.granted == 0


def test_messages_about_an_ended_lease_change_nothing(sim: Simulation) -> None:
    old = issue_leases(sim)
    worker = sim.serving("a")
    sim.end_lease(worker, "g1")
    before = dict(sim.scheduler.models["a"].grants)
    sim.scheduler.lease_ended(worker, "g1", old.number, [LeasedAttempt(77, 1, 1)], sim.now)
    sim.scheduler.lease_used(worker, "g1", old.number, [LeasedAttempt(77, 1, 1)])
    sim.scheduler.lease_used("unknown", "g1", old.number, [LeasedAttempt(77, 1, 1)])
    assert sim.scheduler.models["a"].grants == before
    assert sim.scheduler.running == 0


def test_a_request_under_a_lease_keeps_its_queue_position_when_its_engine_dies(sim: Simulation) -> None:
    old = issue_leases(sim)
    worker = sim.serving("a")
    leased = sim.use_lease(worker, "g1")
    sim.report_lease_use(worker, "g1")
    sim.engine_dies(worker)
    assert sim.scheduler.models["a"].returning == {("g1", leased.number): old.number}


def test_leases_end_with_their_engine(sim: Simulation) -> None:
    issue_leases(sim)
    worker = sim.serving("a")
    sim.use_lease(worker, "g1")
    sim.engine_dies(worker)
    assert sim.scheduler.granted == 0
    sim.run_until_idle()
    assert sim.serving("a") == worker
