"""What must hold after every step: the scheduler's state matches what its workers really do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from protocol.ids import RequestKey
from protocol.messages.caller import Caller
from protocol.messages.models import Loaded, PolicyOverrides
from protocol.messages.recovery import RememberState
from supervisor.scheduler.effects import AnswerCall, Effect, SendMessage
from supervisor.scheduler.model_states import WORKER_STATES, ModelState
from supervisor.scheduler.replicas.replica_set import ReplicaSet
from supervisor.scheduler.scheduler import Scheduler
from tests.supervisor.scheduler.simulated_worker import SimulatedWorker


def check_models(scheduler: Scheduler, workers: Mapping[str, SimulatedWorker], slots: int) -> None:
    """Check that each model's grants match its engine's work, within its ``slots``, and that its state matches its worker's."""
    for model in scheduler._state.models.values():
        worker = model.worker
        assert WORKER_STATES.get(model.state) == (worker.state if worker else None), f"{model.name}: {model.state}"
        assert model.keep_loaded or model.state is not ModelState.RELOADING
        assert not model.keep_loaded or model.state is not ModelState.UNLOADING
        assert worker is None or (worker.model is model and scheduler._state.workers[worker.id] is worker)
        simulated = workers.get(worker.id, SimulatedWorker()) if worker else SimulatedWorker()
        granted = {key: grant.weight for key, grant in model.grants.items()}
        assert granted.keys() == set(simulated.running), f"{model.name}: grants differ from what the engine does"
        assert len(simulated.running) == len(granted), f"{model.name}: a request runs twice"
        assert sum(granted.values()) == model.busy <= slots
        assert model.abandoned <= simulated.abandoned & set(simulated.running)
        assert model.queue.bytes == sum(waiting.request.size for waiting in model.queue)
        orders = [waiting.order for waiting in model.queue]
        assert orders == sorted(orders)
    holding = Counter(worker.node for worker in scheduler._state.workers.values() if worker.counts_as_loaded)
    assert max(holding.values(), default=0) <= scheduler._state.limits.models


def check_index(scheduler: Scheduler) -> None:
    """What the index finds is what a look at all models finds."""
    state, index = scheduler._state, scheduler._state.index
    sets, models = state.replica_sets.values(), list(state.models.values())
    assert index.running == {key: model for model in models for key in model.grants}
    assert index.waiting == {waiting.key: each for each in sets for waiting in each.queue}
    pieces = {key for model in models for key, grant in model.grants.items() if grant.more}
    pieces.update(key for model in models for key in model.unfinished)
    assert pieces == {key for attempts in index.lists.values() for key in attempts}
    callers = [waiting.request.caller for each in sets for waiting in each.queue]
    callers += [grant.caller for model in models for grant in model.grants.values()]
    callers += [caller for model in models for caller in model.unfinished.values()]
    known = [caller for caller in callers if caller is not None]
    for key in {"unknown", *(caller.key for caller in known)}:
        own = [caller for caller in known if caller.key == key]
        assert scheduler.view.requests_of_key(key) == len(own)
        assert scheduler.view.reserved_tokens(key) == sum(caller.reserved_tokens for caller in own)
        running = [model for model in models if any(_is_of(grant.caller, key) for grant in model.grants.values())]
        assert set(scheduler.view.workers_of_key(key)) == {model.worker.id for model in running if model.worker}


def _is_of(caller: Caller | None, key: str) -> bool:
    return caller is not None and caller.key == key


def check_requests(
    scheduler: Scheduler,
    workers: Mapping[str, SimulatedWorker],
    ended: Counter[RequestKey],
    live: Collection[RequestKey],
) -> None:
    """Every request is either queued or running, and ends once."""
    assert all(count == 1 for count in ended.values()), "ended twice"
    queued = {waiting.key for model in scheduler._state.models.values() for waiting in model.queue}
    running = {key for worker in workers.values() for key in worker.running}
    assert set(live) == queued | running, "a request is neither queued nor running"


def check_promise(
    models: Mapping[str, ReplicaSet],
    workers: Mapping[str, SimulatedWorker],
    answer: AnswerCall,
    later: Sequence[Effect],
) -> None:
    """A load or pin is answered when the worker, which has read all before, remembers what calls have asked for the model.

    ``later``: the effects after the answer. They may tell the worker what another call asked for at the same time.
    """
    match answer.report:
        case Loaded(model=name):
            model = models[name]
            assert any(each.worker is not None for each in model.replicas)
        case str(name) if name in models:  # a pin, perhaps of a model that is not loaded yet
            model = models[name]
        case _:
            return
    loaded = [each.worker.id for each in model.replicas if each.worker is not None and each.worker.counts_as_loaded]
    if model.overrides == PolicyOverrides() or not loaded:
        return
    assert answer.after in loaded
    remembered = [command.state for command in workers[answer.after].commands if isinstance(command, RememberState)]
    assert remembered, f"{model.name}: another supervisor would not know {model.overrides}"
    sent = [effect.message for effect in later if isinstance(effect, SendMessage) and effect.peer == answer.after]
    if any(isinstance(message, RememberState) for message in sent):
        return
    assert model.overrides == remembered[-1]


class BeforeChange(NamedTuple):
    """Which workers had models at some moment, and how many slots of each model were granted."""

    workers: frozenset[str] = frozenset()
    busy: Mapping[str, int] = {}


def loaded_now(scheduler: Scheduler) -> BeforeChange:
    workers = frozenset(worker_id for worker_id, worker in scheduler._state.workers.items() if worker.counts_as_loaded)
    return BeforeChange(workers, {model.key: model.busy for model in scheduler._state.models.values()})


def check_policies(scheduler: Scheduler, before_change: BeforeChange) -> None:
    """Nothing was loaded or granted against the policies since they were changed."""
    for model in scheduler._state.models.values():
        holding = [grant for grant in model.grants.values() if grant.weight]
        alone = len(holding) == 1  # a suspect request has all slots of the engine
        serves = model.worker is not None and model.worker.serves
        assert alone or not serves or model.busy <= max(model.slots, before_change.busy.get(model.key, 0))
    for name, group in scheduler._state.policies.groups.items():
        held = [worker for worker in scheduler._state.workers.values() if worker.counts_as_loaded]
        inside = {worker.id for worker in held if name in worker.model.policy.groups}
        outside = {worker.id for worker in held} - inside
        if group.limit:
            assert len(inside) <= max(group.limit, len(inside & before_change.workers)), f"too many of {name}"
        if group.exclusive and inside and outside:
            assert inside | outside <= before_change.workers, f"loaded beside {name}, which is exclusive"


def check_policies_at_rest(scheduler: Scheduler) -> None:
    """When nothing runs or waits, what was loaded against new policies has left, unless it is pinned."""
    held = [worker.model for worker in scheduler._state.workers.values() if worker.counts_as_loaded]
    for name, group in scheduler._state.policies.groups.items():
        inside = [model for model in held if name in model.policy.groups]
        outside = [model for model in held if name not in model.policy.groups]
        pinned = sum(model.pinned for model in inside)
        assert not group.limit or len(inside) <= max(group.limit, pinned), f"too many of {name}"
        if group.exclusive and inside and outside:
            assert pinned, f"beside {name}"
            assert any(model.pinned for model in outside), f"beside {name}"
