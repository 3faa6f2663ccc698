"""How a new scheduler takes over what runs: no loaded model is loaded again, and requests keep their order."""

from __future__ import annotations

from typing import Any

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.caller import Caller
from protocol.messages.engines import CheckModel, EngineReady, LoadProgressed, LoadStage, StartEngine
from protocol.messages.health import LoadInProgress
from protocol.messages.models import PolicyOverrides
from protocol.messages.peers import Shutdown
from protocol.messages.recovery import RememberState
from protocol.messages.work import Cancel, QueueStatus, Refused, SubmitRequest
from protocol.models.memory import MemoryEstimate
from protocol.models.nodes import HEAD
from protocol.worker_states import WorkerState
from supervisor.scheduler.effects import KillAfter, KillWorker, NotifyGrant, SendMessage, SpawnWorker
from supervisor.scheduler.inputs import ModelTarget, SchedulerLimits
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.policy import FixedPolicies, ModelPolicy
from supervisor.scheduler.recovery.recovery_events import AttemptAt, RunningAttempt, RunningWorker, World
from supervisor.scheduler.scheduler import Scheduler
from tests.supervisor.scheduler.effect_player import spec

NOW = 100.0
FACTS = EngineReady(2, 4096, 1, "http://127.0.0.1:1", 0.1, rss=1000)
KEY = RequestKey("g1", 7, 1)
FAILURE = Failure(Code.WORKER_GONE, "exit 0")


def recovered(*workers: RunningWorker, models: int = 1, **more: Any) -> tuple[Scheduler, list[object]]:
    scheduler = Scheduler(SchedulerLimits(models=models), lambda: "new")
    scheduler.recovered(World(workers, **more), NOW)
    scheduler.reconcile(NOW)
    return scheduler, scheduler.effects()


def ready(worker: str = "w1", model: str = "a", *attempts: RunningAttempt, last_use: float = 90.0) -> RunningWorker:
    return RunningWorker(worker, WorkerState.READY, spec(model), FACTS, attempts, last_use)


def submit(scheduler: Scheduler, key: RequestKey = KEY, model: str = "a", age: float | None = 5.0) -> list[object]:
    request = SubmitRequest(key.number, key.attempt, model, "chat/completions", "label", age=age)
    scheduler.request_submitted(key, request, b"", ModelTarget(model, "llm", spec(model)), NOW)
    scheduler.reconcile(NOW)
    return scheduler.effects()


def sent(effects: list[object]) -> list[object]:
    messages = [effect.message for effect in effects if isinstance(effect, SendMessage)]
    return [message for message in messages if not isinstance(message, QueueStatus)]


def test_a_ready_model_serves_at_once() -> None:
    attempt = RunningAttempt(KEY, 1, 80.0, Caller("ci"), abandoned=True)
    scheduler, effects = recovered(ready("w1", "a", attempt))
    model = scheduler._state.models["a"]
    assert (model.state, model.busy, model.slots, model.last_use, model.memory) == (ModelState.READY, 1, 2, 90.0, 1000)
    assert model.keep_loaded
    assert model.abandoned == {KEY}
    assert scheduler.view.requests_of_key("ci") == 1
    assert sent(effects) == []
    assert [effect.worker for effect in effects if isinstance(effect, SpawnWorker)] == ["new"]
    assert any(isinstance(effect, NotifyGrant) for effect in submit(scheduler, RequestKey("g1", 8, 1)))


def test_the_engine_of_a_list_that_has_begun_is_kept_for_its_next_piece() -> None:
    scheduler, _ = recovered(ready("w1", "a", RunningAttempt(KEY, 1, 80.0, more=True)))
    scheduler.close()
    scheduler.attempt_ended(KEY, "", NOW)
    scheduler.reconcile(NOW)
    assert scheduler.view.running == 1
    assert scheduler._state.models["a"].state is ModelState.DRAINING


def test_a_load_goes_on_without_its_caller() -> None:
    scheduler, effects = recovered(RunningWorker("w1", WorkerState.LOADING, spec("a")))
    assert scheduler._state.models["a"].state is ModelState.LOADING
    assert sent(effects) == []
    scheduler.engine_ready("w1", FACTS, NOW)
    assert scheduler._state.models["a"].state is ModelState.READY


def test_a_load_that_goes_on_is_as_old_as_it_was() -> None:
    progress = LoadProgressed(LoadStage.LOADING, 3, 10, "tensors")
    loading = RunningWorker("w1", WorkerState.LOADING, spec("a"), load_began=NOW - 70.0, progress=progress)
    scheduler, _ = recovered(loading)
    assert scheduler.view.loads(NOW + 5.0) == [LoadInProgress("a", LoadStage.LOADING, 75.0, 0, 3, 10, "tensors")]
    scheduler.engine_ready("w1", FACTS, NOW)
    scheduler.reconcile(NOW)
    assert scheduler.view.loads(NOW) == []


def test_an_engine_that_died_is_started_again() -> None:
    scheduler, effects = recovered(RunningWorker("w1", WorkerState.ENGINE_LOST, spec("a")))
    assert sent(effects) == [StartEngine(spec("a"))]
    assert scheduler._state.models["a"].state is ModelState.LOADING


def test_a_worker_that_leaves_keeps_its_place_until_it_is_gone() -> None:
    scheduler, effects = recovered(
        RunningWorker("w1", WorkerState.LEAVING, spec("a"), FACTS), RunningWorker("w2", WorkerState.SPARE)
    )
    assert scheduler._state.models["a"].state is ModelState.UNLOADING
    assert [effect for effect in effects if isinstance(effect, KillAfter)] == [KillAfter("w1", 5.0)]
    assert sent(submit(scheduler, model="b")) == [CheckModel(spec("b"))]
    scheduler.model_checked("w2", MemoryEstimate())
    scheduler.reconcile(NOW)
    assert sent(scheduler.effects()) == [], "only one model may be loaded"
    scheduler.worker_gone("w1", FAILURE, NOW)
    scheduler.memory_read(HEAD, [], {}, NOW)
    scheduler.reconcile(NOW)
    assert sent(scheduler.effects()) == [StartEngine(spec("b"))]


def test_a_spare_that_leaves_is_not_a_spare() -> None:
    scheduler, effects = recovered(RunningWorker("w1", WorkerState.LEAVING))
    assert scheduler._state.workers["w1"].state is WorkerState.LEAVING
    assert not any(isinstance(message, Shutdown) for message in sent(effects))


def test_a_worker_that_starts_may_still_report() -> None:
    scheduler, effects = recovered(starting=["w1"])
    assert scheduler._state.workers["w1"].state is WorkerState.SPAWNED
    assert effects == []
    scheduler.worker_reported("w1")
    assert scheduler._state.workers["w1"].state is WorkerState.SPARE


def test_the_model_used_least_recently_is_evicted() -> None:
    scheduler, _ = recovered(
        ready("w1", "a", last_use=50.0),
        ready("w2", "b", last_use=40.0),
        RunningWorker("w3", WorkerState.SPARE),
        models=2,
    )
    submit(scheduler, model="c")
    assert scheduler._state.models["b"].state is ModelState.DRAINING
    assert scheduler._state.models["a"].state is ModelState.READY


def test_a_pinned_model_stays_pinned() -> None:
    pinned = ready()._replace(remembered=PolicyOverrides(pinned=True))
    scheduler, _ = recovered(pinned, RunningWorker("w2", WorkerState.SPARE))
    (refused,) = [message for message in sent(submit(scheduler, model="b")) if isinstance(message, Refused)]
    assert refused.failure.code is Code.ALL_PINNED


def test_what_no_client_waits_for_is_cancelled_and_keeps_its_slots() -> None:
    scheduler, effects = recovered(ready("w1", "a", RunningAttempt(KEY, 2, 80.0)), unwanted=[AttemptAt(KEY, "w1")])
    assert sent(effects) == [Cancel(*KEY, "no client waits for it")]
    assert scheduler._state.models["a"].busy == 2


def test_a_request_that_never_reached_its_worker_comes_back_before_what_waited() -> None:
    attempts = [RunningAttempt(RequestKey("g2", number, 1), 1, 80.0 + number) for number in (1, 2)]
    scheduler, effects = recovered(ready("w1", "a", *attempts), returned=[AttemptAt(KEY, "w1")])
    (refused,) = sent(effects)
    assert (refused.number, refused.attempt, refused.failure.code) == (7, 1, Code.RETURNED)
    submit(scheduler, RequestKey("g2", 3, 1))
    submit(scheduler, RequestKey("g1", 7, 2), age=None)
    assert [waiting.key.number for waiting in scheduler._state.models["a"].queue] == [7, 3]


def test_a_request_that_runs_is_not_run_again() -> None:
    scheduler, _ = recovered(ready("w1", "a", RunningAttempt(KEY, 1, 80.0)))
    (effect,) = submit(scheduler)
    assert isinstance(effect, NotifyGrant)
    assert (effect.gateway, effect.grant.number, effect.grant.worker) == ("g1", 7, "w1")
    assert scheduler._state.models["a"].busy == 1


def test_a_request_that_has_just_ended_is_not_run_again() -> None:
    scheduler, _ = recovered(ready(), ended={KEY: "w1"})
    (effect,) = submit(scheduler)
    assert isinstance(effect, NotifyGrant)
    assert scheduler._state.models["a"].busy == 0


def test_a_request_that_ended_at_a_worker_that_is_gone_is_returned() -> None:
    scheduler, _ = recovered(ready(), ended={KEY: "w1"})
    scheduler.worker_gone("w1", FAILURE, NOW)
    scheduler.effects()
    (refused,) = sent(submit(scheduler))
    assert refused.failure.code is Code.RETURNED


def test_a_request_that_waits_is_submitted_again_without_effect() -> None:
    attempts = [RunningAttempt(RequestKey("g2", number, 1), 1, 80.0) for number in (1, 2)]
    scheduler, _ = recovered(ready("w1", "a", *attempts))
    submit(scheduler)
    submit(scheduler)
    assert len(scheduler._state.models["a"].queue) == 1


def test_two_workers_with_one_model_do_not_both_stay() -> None:
    scheduler, effects = recovered(ready("w1"), ready("w2"))
    assert [effect for effect in effects if isinstance(effect, KillWorker)] == [KillWorker("w2")]
    worker = scheduler._state.models["a"].worker
    assert worker is not None
    assert worker.id == "w1"


def test_a_worker_remembers_what_calls_asked_for_its_model() -> None:
    scheduler, _ = recovered(ready()._replace(remembered=PolicyOverrides(ttl=30.0)))
    scheduler.overrides_requested("g1", 1, "a", PolicyOverrides(pinned=True))
    scheduler.reconcile(NOW)
    assert sent(scheduler.effects()) == [RememberState(PolicyOverrides(pinned=True, ttl=30.0))]
    scheduler.reconcile(NOW)
    assert sent(scheduler.effects()) == []


def test_replicas_that_an_earlier_supervisor_has_added_stay() -> None:
    policies = FixedPolicies({"a": ModelPolicy(max_replicas=2)})
    scheduler = Scheduler(SchedulerLimits(), lambda: "new", policies=policies)
    scheduler.recovered(World((ready("w1")._replace(replica=1), ready("w2")._replace(replica=2))), NOW)
    scheduler.reconcile(NOW)
    assert not [effect for effect in scheduler.effects() if isinstance(effect, KillWorker | SendMessage)]
    assert [each.retiring for each in scheduler._state.replica_sets["a"].replicas] == [False, False]
