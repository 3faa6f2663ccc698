"""Dry runs of loads: what they tell, and that they change nothing."""

from __future__ import annotations

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.engines import CheckModel
from protocol.messages.models import LoadPlan
from protocol.models.memory import HOST, Capacity, MemoryEstimate, PlaceNeed
from protocol.models.nodes import HEAD, NodeNeeds
from protocol.worker_states import WorkerState
from supervisor.scheduler.inputs import ModelTarget
from supervisor.scheduler.loads.assignment import models_to_load
from supervisor.scheduler.nodes.node_views import models_as_seen_by
from supervisor.scheduler.state import MAX_PLAN_CHECKS
from tests.supervisor.scheduler.effect_player import spec
from tests.supervisor.scheduler.simulated_nodes import checks, cluster, need
from tests.supervisor.scheduler.simulation import Simulation

CALL = ("g1", 800)


def machine(host: int, models: str = "", reserve: int = 0, **needs: int) -> Simulation:
    """Return a machine with this memory; ``needs``: model → bytes. ``models`` are loaded in this order."""
    sim = Simulation(9, memory_reserve=reserve)
    sim.machine = {HOST: host}
    sim.estimates = {name: MemoryEstimate({HOST: PlaceNeed(need)}) for name, need in needs.items()}
    for number, name in enumerate(models, 500):
        sim.pass_time(1.0)
        sim.load(name, number)
        sim.run_until_idle()
    return sim


def planned(sim: Simulation, name: str, **more: object) -> LoadPlan:
    """Make a dry run; nothing else happens, and the worker is a spare again."""
    before = {model.name: (model.state, model.last_use) for model in sim.state.models.values()}
    sim.plan(name, **more)
    for _ in range(10):
        for worker in sim.of_state(WorkerState.SPAWNED):
            sim.hello(worker)
        for worker in sim.of_state(WorkerState.CHECKING):
            sim.plan_checked(worker, name)
    assert {model.name: (model.state, model.last_use) for model in sim.state.models.values()} == before
    assert not sim.of_state(WorkerState.CHECKING, WorkerState.CHECKED)
    assert not [note for note in sim.notes if note.event == "model drains"]
    report = sim.reports[CALL]
    assert isinstance(report, LoadPlan)
    return report


def test_a_model_that_fits() -> None:
    plan = planned(machine(100, "a", reserve=10, a=30, b=40), "b")
    assert (plan.decision, plan.need, plan.evictions, plan.refusal) == ("load", {HOST: 40}, [], None)
    assert (plan.available, plan.reserved) == ({HOST: 60}, {HOST: 10})
    assert plan.capacities == [Capacity(HOST, 100, 70)]


def test_the_models_that_would_leave_and_what_that_frees() -> None:
    sim = machine(100, "ab", a=30, b=50, c=40)
    sim.pass_time(9.0)
    plan = planned(sim, "c")
    assert plan.decision == "evict"
    (evicted,) = plan.evictions
    assert (evicted.model, evicted.reason, evicted.busy, evicted.frees) == ("a", "memory", False, {HOST: 30})
    assert evicted.idle_seconds == 10.0


def test_a_refusal_is_an_answer() -> None:
    plan = planned(machine(100, "a", a=30, b=140), "b")
    assert (plan.decision, plan.need) == ("refuse", {HOST: 140})
    assert plan.refusal is not None
    assert plan.refusal.code is Code.INSUFFICIENT_MEMORY


def test_a_model_of_another_server_evicts_nothing() -> None:
    sim = Simulation(1)
    sim.load("a", 500)
    sim.run_until_idle()
    plan = planned(sim, "r", elsewhere=True)
    assert (plan.decision, plan.evictions, plan.refusal) == ("load", [], None)


def test_a_model_of_another_server_that_is_about_to_be_loaded_takes_no_place() -> None:
    sim = Simulation(1)
    target = ModelTarget("r", "llm", spec("r", elsewhere=True))
    sim.scheduler.load_requested("g1", 501, target, sim.now)
    sim.scheduler.reconcile(sim.now)
    waiting = models_to_load(sim.state)
    assert [model.name for model in waiting] == ["r"]
    assert models_as_seen_by("b", sim.state, waiting, sim.now) == []


def test_the_context_that_would_be_chosen_after_the_others_have_left() -> None:
    sim = machine(10_000, "a", a=8_000)
    sim.estimates["b"] = MemoryEstimate({HOST: PlaceNeed(1_000, 1.0)}, largest_context=32_768)
    plan = planned(sim, "b")
    assert (plan.decision, plan.context, plan.need) == ("evict", 8_960, {HOST: 9_960})


def test_a_loaded_model_is_loaded_and_with_other_options_its_present_engine_leaves() -> None:
    sim = machine(100, "a", a=60)
    assert planned(sim, "a").decision == "loaded"
    del sim.reports[CALL]
    assert planned(sim, "a", options={"ctx_size": 9}).decision == "wait"


def test_files_that_cannot_be_loaded_are_refused() -> None:
    sim = machine(100)
    sim.plan("a")
    sim.advance_to(WorkerState.CHECKING)
    (worker,) = sim.of_state(WorkerState.CHECKING)
    assert sim.workers[worker].commands == [CheckModel(spec("a"))]
    sim.load_fails(worker, Failure(Code.MODEL_UNUSABLE, "broken"))
    assert [failure.code for failure in sim.refusals.values()] == [Code.MODEL_UNUSABLE]
    assert sim.of_state(WorkerState.SPARE) == [worker]


def test_a_worker_that_dies_refuses_it_and_a_caller_that_leaves_ends_it() -> None:
    sim = machine(100)
    sim.plan("a")
    sim.advance_to(WorkerState.CHECKING)
    sim.worker_dies(sim.of_state(WorkerState.CHECKING)[0])
    assert [failure.code for failure in sim.refusals.values()] == [Code.WORKER_GONE]
    sim.plan("a", 801)
    sim.advance_to(WorkerState.CHECKING)
    sim.abandon_call(801)
    sim.run_until_idle()
    assert ("g1", 801) not in sim.reports
    assert sim.state.settled


def test_many_at_once_take_few_workers_and_leave_those_of_loads_alone() -> None:
    sim = machine(100, b=10)
    numbers = range(800, 800 + 5 * MAX_PLAN_CHECKS)
    for number in numbers:
        sim.plan("a", number)
    sim.load("b", 700)
    most = 0
    while len(sim.reports) + len(sim.refusals) < len(numbers):
        plans = [worker for worker in sim.of_state(WorkerState.CHECKING) if sim.state.workers[worker].plan]
        most = max(most, len(plans))
        assert len(sim.state.workers) <= MAX_PLAN_CHECKS + sim.state.limits.spares + 1
        if spawned := sim.of_state(WorkerState.SPAWNED):
            sim.hello(spawned[0])
        elif plans:
            sim.plan_checked(plans[0], "a")
        else:
            assert sim.advance()
    assert not sim.refusals
    assert most == MAX_PLAN_CHECKS
    assert sim.state.models["b"].worker is not None


# ---- several nodes ---------------------------------------------------------------------------------------------------


def test_a_plan_is_made_for_the_node_where_the_model_would_be_loaded() -> None:
    sim = cluster(head=100, large=1000)
    need(sim, a=50, b=500, c=90)
    sim.load("a", 901, size=50)
    sim.run_until_idle()
    plan = planned(sim, "b", size=500)
    assert (plan.node, plan.decision, plan.available) == ("large", "load", {HOST: 1000})
    del sim.reports[CALL]
    plan = planned(sim, "c", needs=NodeNeeds(nodes=[HEAD]), size=90)
    assert (plan.node, plan.decision, [each.model for each in plan.evictions]) == (HEAD, "evict", ["a"])


def test_a_plan_moves_as_a_load_would_if_its_check_shows_that_the_model_fits_elsewhere_only() -> None:
    sim = cluster(head=100, large=1000)
    need(sim, b=500)
    plan = planned(sim, "b", size=50)
    assert (plan.node, plan.decision, plan.need) == ("large", "load", {HOST: 500})
    assert sorted(checks(sim)) == [HEAD, "large"]


def test_a_plan_changes_nothing_that_is_known_of_the_model() -> None:
    sim = cluster(head=100, large=1000)
    need(sim, a=50)
    sim.load("a", 901, size=50)
    sim.run_until_idle()
    known = dict(sim.state.models["a"].search.checks)
    assert known
    planned(sim, "a", size=70)
    assert sim.state.models["a"].search.checks == known


def test_a_plan_for_which_no_node_suits_is_refused() -> None:
    sim = cluster(gpu2=100)
    sim.plan("a", needs=NodeNeeds(nodes=["gpu3"]))
    assert sim.refusals[RequestKey(*CALL, 0)].code is Code.NO_NODE


def test_on_one_node_a_plan_names_none() -> None:
    assert planned(machine(100, a=60), "a").node == ""
