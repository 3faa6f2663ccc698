"""What the scheduler knows, for everything outside it: questions about its state, answered with values. Nothing here changes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import structs

from protocol.failures import Failure
from protocol.ids import RequestKey
from protocol.messages.engines import EngineReady
from protocol.messages.health import FailedModel, LoadInProgress, QueueShare
from protocol.messages.work import AttemptProgress
from protocol.models.recipes import OptionValue, with_backend
from supervisor.scheduler.inputs import ModelTarget
from supervisor.scheduler.loads.progress import loads_in_progress
from supervisor.scheduler.nodes.node_comparisons import wants_memory
from supervisor.scheduler.queue.work_items import key_of
from supervisor.scheduler.requests_in_flight import requests_in_flight, waiting_shares
from supervisor.scheduler.scheduled_model import NEVER
from supervisor.scheduler.state import SchedulerState
from supervisor.scheduler.view_values import (
    EngineView,
    ModelView,
    RequestView,
    WaitingShare,
    WorkerView,
    model_view,
    worker_view,
)


class SchedulerView:
    """The questions that others ask the scheduler."""

    def __init__(self, state: SchedulerState) -> None:
        """Answer from this state."""
        self._state = state

    # The server

    @property
    def closing(self) -> bool:
        """Whether the server is ending."""
        return self._state.closing

    @property
    def spawn_problem(self) -> Failure | None:
        """Why worker processes do not start, until one does."""
        return self._state.spawn_problem

    @property
    def counters(self) -> dict[str, int]:
        """What the scheduler has counted."""
        return dict(self._state.counters)

    @property
    def busy(self) -> int:
        """Slots in use, of all models."""
        return sum(model.busy for model in self._state.models.values())

    @property
    def running(self) -> int:
        """Attempts that engines are working on, including reads, and long lists between two pieces, of all models."""
        return sum(len(model.grants) + len(model.unfinished) for model in self._state.models.values())

    @property
    def queued(self) -> int:
        """Requests that wait, for all models."""
        return sum(len(model.queue) for model in self._state.replica_sets.values())

    # Memory

    @property
    def settled(self) -> bool:
        """Whether requests, their ends and cancels make nothing due, because nothing waits or moves."""
        return self._state.settled

    def wants_memory(self, now: float) -> list[str]:
        """Return the nodes whose memory must be read before the next decision."""
        return wants_memory(self._state, now)

    def memory_changes(self, node: str) -> int:
        """Return how often something has changed the memory of a node, so that figures from before are wrong."""
        known = self._state.nodes.get(node)
        return known.memory.changes if known is not None else 0

    # Models

    @property
    def has_loaded_models(self) -> bool:
        """Whether any model counts as loaded."""
        return any(model.loaded for model in self._state.models.values())

    def models(self) -> list[ModelView]:
        """Return all models that are used or requested."""
        return [model_view(model) for model in self._state.replica_sets.values()]

    def model(self, name: str) -> ModelView | None:
        """Return a model by its registered name, None if it is neither used nor requested."""
        model = self._state.replica_sets.get(name)
        return model_view(model) if model is not None else None

    def serving(self, name: str) -> ModelTarget | None:
        """Return a model as it is loaded, None if no engine of it answers. Quick: each request asks this."""
        known = self._state.replica_sets.get(name)
        model = known.lead if known is not None else None
        if model is None or model.spec is None or model.worker is None or not model.worker.serves:
            return None
        return ModelTarget(model.name, model.type, model.spec)

    def latest(self, fits: Callable[[ModelView], bool]) -> ModelView | None:
        """Return the model used last, among those whose engine answers and that pass ``fits``."""
        serving = [model for model in self.models() if model.serves and fits(model)]
        return max(serving, key=lambda model: NEVER if model.last_use is None else model.last_use, default=None)

    def used(self) -> list[str]:
        """Return all models that were ever used, loaded or not, last used first."""
        use = self._state.past_use | {model.name: model.last_use for model in self._state.replica_sets.values()}
        return sorted((name for name in use if use[name] != NEVER), key=use.__getitem__, reverse=True)

    def failed_models(self, now: float) -> list[FailedModel]:
        """Return the models that could not be loaded, whose engines died too often or were killed for memory, or whose files were refused."""
        known = [
            FailedModel(model.name, model.backoff.failure, model.backoff.reported_failures, model.backoff.pause(now))
            for model in (each.lead for each in self._state.replica_sets.values())
            if model.backoff.failure
        ]
        names = {each.model for each in known}
        refused = self._state.failed_checks.recent(now)
        return known + [
            FailedModel(name, each.failure, each.failures, 0.0) for name, each in refused.items() if name not in names
        ]

    def loads(self, now: float) -> list[LoadInProgress]:
        """Return the loads that have begun and not ended, the oldest first."""
        return loads_in_progress(self._state, now)

    def queue_shares(self, name: str) -> list[QueueShare]:
        """Return what waits for a model, by API key."""
        model = self._state.replica_sets[name]
        shares: dict[str, QueueShare] = {}
        for position, waiting in enumerate(model.fair_share.order(model.queue.by_key), 1):
            key = key_of(waiting)
            first = shares.get(key) or QueueShare(key, 0, position, round(model.wait_s(position - 1), 3))
            shares[key] = structs.replace(first, requests=first.requests + 1)
        return list(shares.values())

    def waiting_shares(self, name: str, most: int) -> list[WaitingShare]:
        """Return what waits for a model, by API key; only the next ``most`` requests are looked at."""
        return waiting_shares(self._state, name, most)

    def progress(self, name: str) -> list[AttemptProgress]:
        """Return how far the engine of a model is with its attempts, for those that it reports."""
        replicas = self._state.replica_sets[name].replicas
        progress = [grant.progress for each in replicas for grant in each.grants.values()]
        return [each for each in progress if each is not None]

    def requested_options(self, name: str) -> Mapping[str, OptionValue]:
        """Return the options for a model that was just downloaded: those of the latest waiting load that names any."""
        model = self._state.replica_sets.get(name)
        return next((call.options for call in reversed(model.loaders if model else []) if call.options), {})

    # Workers

    def workers(self) -> list[WorkerView]:
        """Return all worker processes."""
        return [worker_view(worker) for worker in self._state.workers.values()]

    def worker(self, name: str) -> WorkerView | None:
        """Return a worker process, None if there is none with this name."""
        worker = self._state.workers.get(name)
        return worker_view(worker) if worker is not None else None

    def engine_of(self, worker: str) -> EngineReady | None:
        """Return what a worker has reported of its engine; None if that is not ready."""
        known = self._state.workers.get(worker)
        return known.facts if known is not None else None

    def estimated_engines(self) -> list[EngineView]:
        """Return the engines that answer, except those that an earlier supervisor has started: only that one knew their estimates."""
        return [
            EngineView(
                worker=worker.id,
                node=worker.node,
                facts=worker.facts,
                spec=with_backend(worker.model.spec, worker.backend),
                estimate=worker.estimate,
                context=worker.context,
            )
            for worker in self._state.workers.values()
            if worker.serves and worker.facts and worker.model and worker.model.spec
            if worker.need.keys() <= worker.estimate.places.keys()
        ]

    # Requests

    def attempts_of_gateway(self, gateway: str) -> set[RequestKey]:
        """Return the attempts of a gateway that wait or run."""
        return {
            key
            for model in self._state.models.values()
            for key in (*model.grants, *(waiting.key for waiting in model.queue))
            if key.gateway == gateway
        }

    def requests_in_flight(self, most: int) -> list[RequestView]:
        """Return the requests that run, then those that are granted next; ``most`` altogether."""
        return requests_in_flight(self._state, most)

    def attempt_of(self, gateway: str, number: int) -> RequestKey | None:
        """Return the attempt of a gateway's request that runs or waits; None if there is none."""
        attempts = self.attempts_of_gateway(gateway)
        return next((key for key in attempts if key.number == number), None)

    def knows_attempt(self, key: RequestKey) -> bool:
        """Return whether an attempt waits, runs, or had ended before this supervisor took over."""
        if key in self._state.ended_before:
            return True
        return key in self._state.index.running or key in self._state.index.waiting

    # API keys

    def requests_of_key(self, key: str) -> int:
        """Return how many requests of an API key wait or run, by its name; a long list also between two of its pieces."""
        return self._state.index.of_key(key).requests

    def reserved_tokens(self, key: str) -> int:
        """Return how many tokens the waiting and running requests of an API key reserve."""
        return self._state.index.of_key(key).tokens

    def workers_of_key(self, key: str) -> list[str]:
        """Return the workers that run requests of an API key."""
        return [model.worker.id for model in self._state.index.of_key(key).running_on if model.worker]
