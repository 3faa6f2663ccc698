"""Where models are loaded on a server with several nodes: checks, moves, evictions, copies of files, backends."""

from __future__ import annotations

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.engines import CheckModel, StartEngine
from protocol.models.memory import HOST, MemoryEstimate, PlaceNeed
from protocol.models.nodes import HEAD, NodeNeeds
from protocol.models.recipes import NodeBackend
from protocol.worker_states import WorkerState
from supervisor.scheduler.inputs import ModelTarget
from supervisor.scheduler.nodes.node_comparisons import READ_TIMEOUT_S
from tests.supervisor.scheduler.effect_player import spec
from tests.supervisor.scheduler.simulated_nodes import checks, cluster, need, places
from tests.supervisor.scheduler.simulation import Simulation


def test_a_model_is_loaded_where_its_needs_are_met() -> None:
    sim = cluster(gpu1=100, gpu2=100)
    sim.load("a", needs=NodeNeeds(nodes=["gpu2"]))
    sim.run_until_idle()
    assert places(sim) == {"a": "gpu2"}


def test_a_model_that_no_node_suits_is_refused_with_what_is_missing_where() -> None:
    sim = cluster(gpu2=100)
    sim.load("a", 901, needs=NodeNeeds(devices=["amd_npu"]))
    refused = sim.refusals[RequestKey("g1", 901, 0)]
    assert refused.code is Code.NO_NODE
    assert "(head: it has no device of kind amd_npu; gpu2: it has no device of kind amd_npu)" in refused.message
    assert refused.retry_after > 0
    assert checks(sim) == []


def test_also_on_a_single_machine() -> None:
    sim = Simulation()
    sim.load("a", 901, needs=NodeNeeds(nodes=["gpu-*"]))
    assert "head: its name matches none of gpu-*" in sim.refusals[RequestKey("g1", 901, 0)].message


def test_before_a_check_the_size_of_its_files_decides() -> None:
    sim = cluster(head=100, large=1000, small=60)
    need(sim, a=50, b=500)
    sim.load("a", 901, size=50)
    sim.load("b", 902, size=500)
    sim.run_until_idle()
    assert places(sim) == {"a": "small", "b": "large"}
    assert sorted(checks(sim)) == ["large", "small"]


def test_models_that_are_queued_at_once_see_each_other() -> None:
    sim = cluster(head=60, gpu1=60, gpu2=60)
    need(sim, a=50, b=50, c=50)
    for number, name in enumerate("abc"):
        target = ModelTarget(name, "llm", spec(name, size=50))
        sim.calls.add(("g1", number))
        sim.scheduler.load_requested("g1", number, target, sim.now)
    sim.settle()
    sim.run_until_idle()
    assert sorted(places(sim).values()) == ["gpu1", "gpu2", HEAD]
    assert not sim.refusals


def test_a_model_moves_if_its_check_shows_that_it_fits_elsewhere_only() -> None:
    sim = cluster(head=100, large=1000)
    need(sim, a=500)
    sim.load("a", size=50)
    sim.run_until_idle()
    assert places(sim) == {"a": "large"}
    assert sorted(checks(sim)) == [HEAD, "large"]


def test_a_model_does_not_go_back_where_its_check_has_shown_that_it_does_not_fit() -> None:
    sim = cluster(head=100, large=200)
    sim.load("a", 901, size=50)
    sim.settle()
    (worker,) = sim.of_state(WorkerState.CHECKING)
    sim.checked(worker, MemoryEstimate({HOST: PlaceNeed(150)}))
    (worker,) = sim.of_state(WorkerState.CHECKING)
    assert sim.workers[worker].node == "large"
    sim.checked(worker, MemoryEstimate({HOST: PlaceNeed(300)}))
    refused = sim.refusals[RequestKey("g1", 901, 0)]
    assert refused.code is Code.INSUFFICIENT_MEMORY
    assert "of the memory of node head, which has" in refused.message, "there, less is missing"
    assert len(checks(sim)) == 2


def test_a_model_is_evicted_where_that_costs_least() -> None:
    sim = cluster(head=60, gpu2=60)
    need(sim, a=50, b=50, c=50)
    for number, name in enumerate("ab", 901):
        sim.load(name, number, size=50)
        sim.run_until_idle()
        sim.pass_time(1.0)
    where = places(sim)
    sim.submit("a")
    sim.load("c", size=50)
    sim.run_until_idle()
    assert places(sim) == {"a": where["a"], "c": where["b"]}


def test_a_swap_on_one_node_does_not_wait_for_another() -> None:
    sim = cluster(1, gpu2=100)
    for number, name in enumerate("ab", 901):
        sim.load(name, number, needs=NodeNeeds(nodes=[HEAD if name == "a" else "gpu2"]))
        sim.run_until_idle()
    running = sim.submit("a")
    sim.load("c", 903, needs=NodeNeeds(nodes=[HEAD]))  # waits until the request of a has ended
    sim.load("d", 904, needs=NodeNeeds(nodes=["gpu2"]))
    sim.run_until_idle()
    assert places(sim) == {"d": "gpu2"}
    sim.finish(running)
    sim.run_until_idle()
    assert places(sim) == {"c": HEAD, "d": "gpu2"}


def test_a_model_is_loaded_by_the_last_worker_of_a_node_where_no_further_ones_start() -> None:
    sim = cluster(models=1, gpu2=100)
    sim.load("b", 901, needs=NodeNeeds(nodes=["gpu2"]))
    sim.run_until_idle()
    sim.load("c", 902, needs=NodeNeeds(nodes=[HEAD]))
    sim.other_version(sim.of_state(WorkerState.SPAWNED)[0], 99)
    sim.load_fails(sim.of_state(WorkerState.CHECKING)[0])
    sim.submit("a")
    sim.run_until_idle()
    assert places(sim) == {"a": HEAD, "b": "gpu2"}


def test_a_choice_waits_for_the_memory_of_the_nodes_but_not_for_long() -> None:
    sim = cluster(head=10, gpu2=100)
    for name in (HEAD, "gpu2"):
        sim.read_memory(name)
    sim.pass_time(10.0)
    sim.calls.add(("g1", 901))
    sim.scheduler.load_requested("g1", 901, ModelTarget("a", "llm", spec("a", size=50)), sim.now)
    assert sim.scheduler.view.wants_memory(sim.now) == ["gpu2", HEAD]
    sim.scheduler.reconcile(sim.now)
    assert not sim.of_state(WorkerState.CHECKING)
    sim.now += READ_TIMEOUT_S
    sim.scheduler.reconcile(sim.now)
    (worker,) = sim.of_state(WorkerState.CHECKING)
    assert sim.workers[worker].node == "gpu2", "the last figures are known"


# ---- files -----------------------------------------------------------------------------------------------------------


def test_files_are_copied_once_and_then_the_model_is_loaded() -> None:
    sim = cluster(head=10, gpu2=100)
    sim.lacking.add(("a", "gpu2"))
    need(sim, a=50)
    sim.load("a", size=50)
    key = sim.submit("a")
    assert sim.copies == [("a", "gpu2")]
    (load,) = sim.scheduler.view.loads(sim.now)
    assert (load.stage, load.node, load.done, load.total, load.unit) == ("copying files", "gpu2", 0, 0, "")
    for copied in (("a", "gpu2"), ("a", "gone"), ("other", "gpu2")):
        sim.scheduler.files_copied(*copied, 7_654_321, 50_000_000)
    (load,) = sim.scheduler.view.loads(sim.now)
    assert (load.stage, load.done, load.total, load.unit) == ("copying files", 7, 50, "MB")
    assert not sim.of_state(WorkerState.CHECKING)
    sim.copied("a", "gpu2")
    sim.run_until_idle()
    assert places(sim) == {"a": "gpu2"}
    assert key in sim.order


def test_a_node_with_the_files_is_preferred() -> None:
    sim = cluster(head=10, gpu1=60, gpu2=100)
    sim.lacking.add(("a", "gpu1"))
    need(sim, a=50)
    sim.load("a", size=50)
    sim.run_until_idle()
    assert places(sim) == {"a": "gpu2"}


def test_if_the_files_do_not_reach_a_node_another_one_is_chosen() -> None:
    sim = cluster(head=10, gpu1=60, gpu2=100)
    sim.lacking |= {("a", "gpu1"), ("a", "gpu2")}
    need(sim, a=50)
    sim.load("a", 901, size=50)
    sim.copied("a", "gpu1", Failure(Code.DOWNLOAD_FAILED, "its disk is full"))
    assert sim.copies == [("a", "gpu2")]
    sim.copied("a", "gpu2", Failure(Code.DOWNLOAD_FAILED, "its disk is full, too"))
    sim.run_until_idle()
    refused = sim.refusals[RequestKey("g1", 901, 0)]
    assert refused.code is Code.INSUFFICIENT_MEMORY, "the head was tried at last"


def test_if_they_reach_no_node_that_suits_the_load_is_refused_with_the_reason() -> None:
    sim = cluster(gpu1=60)
    sim.lacking.add(("a", "gpu1"))
    sim.load("a", 901, needs=NodeNeeds(nodes=["gpu1"]))
    full = Failure(Code.INSUFFICIENT_STORAGE, "its disk is full", detail="/cache: 7 bytes are missing")
    sim.copied("a", "gpu1", full)
    refused = sim.refusals[RequestKey("g1", 901, 0)]
    assert (refused.code, "gpu1: its disk is full" in refused.message) == (full.code, True)
    assert refused.detail == "gpu1: /cache: 7 bytes are missing"


def test_an_explicit_load_tries_again_to_copy_the_files() -> None:
    sim = cluster(gpu1=60)
    sim.load("a", 901, needs=NodeNeeds(nodes=["gpu1"]))
    sim.run_until_idle()
    sim.node_dies("gpu1")
    sim.lacking.add(("a", "gpu1"))
    sim.join("gpu1", machine={HOST: 60})
    sim.copied("a", "gpu1", Failure(Code.DOWNLOAD_FAILED, "its disk is full"))
    sim.pass_time(1.0)
    assert sim.copies == [], "it is not tried without a pause"
    sim.load("a", 902, needs=NodeNeeds(nodes=["gpu1"]))
    assert sim.copies == [("a", "gpu1")]


# ---- backends --------------------------------------------------------------------------------------------------------

BACKENDS = [NodeBackend("cuda", "gpu"), NodeBackend("npu", "npu", "exclusive"), NodeBackend("cpu")]


def test_the_backend_of_the_node_runs_a_model_there() -> None:
    sim = Simulation()
    sim.join("gpu2", backends=["llamacpp:cpu", "llamacpp:cuda"])
    sim.run_until_idle()
    sim.load("a", needs=NodeNeeds(nodes=["gpu2"], backends=["llamacpp:cuda", "llamacpp:cpu"]), backends=BACKENDS)
    sim.run_until_idle()
    commands = sim.workers[sim.serving("a")].commands
    assert [each.backend for each in commands if isinstance(each, CheckModel | StartEngine)] == ["cuda", "cuda"]
    view = sim.scheduler.view.model("a")
    assert view is not None
    assert view.spec is not None
    assert (view.backend, view.spec.backend) == ("cuda", "cpu")


def test_a_load_with_the_same_options_does_not_reload_a_model_that_another_backend_runs() -> None:
    sim = Simulation()
    sim.join("gpu2", backends=["llamacpp:cuda"])
    sim.run_until_idle()
    for number in (901, 902):
        sim.load("a", number, needs=NodeNeeds(nodes=["gpu2"]), backends=BACKENDS[: 903 - number])
        sim.run_until_idle()
    assert sim.scheduler.view.counters["loads"] == 1


def test_a_model_counts_on_the_npu_of_its_node_if_a_backend_for_it_runs_it_there() -> None:
    sim = cluster(npu1=100)
    sim.join("npu1", machine={HOST: 100}, backends=["llamacpp:npu"])
    for number, name in enumerate("ab", 901):
        sim.load(name, number, needs=NodeNeeds(nodes=["npu1"]), backends=BACKENDS)
        sim.run_until_idle()
    assert places(sim) == {"b": "npu1"}


def test_without_its_backend_anywhere_a_model_is_checked_on_the_head_which_says_what_to_install() -> None:
    sim = cluster(gpu2=100)
    sim.load("a", needs=NodeNeeds(backends=["llamacpp:cuda"]))
    assert checks(sim) == [HEAD]
