"""What must hold after every step: the scheduler's state is what its workers really do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from protocol.ids import RequestKey
from supervisor.scheduler.model_states import WORKER_STATES, ModelState
from supervisor.scheduler.scheduler import Scheduler
from tests.supervisor.simulated_worker import SimulatedWorker


def check_models(scheduler: Scheduler, workers: Mapping[str, SimulatedWorker], slots: int) -> None:
    """Each model's grants are what its engine does, within its ``slots``; its state is its worker's."""
    for model in scheduler.models.values():
        process = model.process
        assert WORKER_STATES.get(model.state) == (process.state if process else None), f"{model.name}: {model.state}"
        assert model.keep_loaded or model.state is not ModelState.RELOADING
        assert not model.keep_loaded or model.state is not ModelState.UNLOADING
        assert process is None or (process.model is model and scheduler.workers[process.worker] is process)
        worker = workers.get(process.worker, SimulatedWorker()) if process else SimulatedWorker()
        granted = {key: grant.weight for key, grant in model.grants.items()}
        assert granted.keys() == set(worker.running), f"{model.name}: grants differ from what the engine does"
        assert len(worker.running) == len(granted), f"{model.name}: a request runs twice"
        assert sum(granted.values()) == model.busy <= slots
        assert model.abandoned <= worker.abandoned & set(worker.running)
        assert model.queue.bytes == sum(waiting.request.size for waiting in model.queue)
        orders = [waiting.order for waiting in model.queue]
        assert orders == sorted(orders)
    holding = [process for process in scheduler.workers.values() if process.counts_as_loaded]
    assert len(holding) <= scheduler.limits.models


def check_requests(
    scheduler: Scheduler,
    workers: Mapping[str, SimulatedWorker],
    ended: Counter[RequestKey],
    live: Collection[RequestKey],
) -> None:
    """Every request is either queued or running, and ends once."""
    assert all(count == 1 for count in ended.values()), "ended twice"
    queued = {waiting.key for model in scheduler.models.values() for waiting in model.queue}
    running = {key for worker in workers.values() for key in worker.running}
    assert set(live) == queued | running, "a request is neither queued nor running"
