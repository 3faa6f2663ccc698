"""A small world: what can happen in it next, what it looks like, and whether it comes to rest.

Each world has few nodes, models and requests, and each kind of fault happens at most once in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from protocol.models.memory import HOST, MemoryEstimate, PlaceNeed
from protocol.models.nodes import HEAD
from protocol.worker_states import WorkerState
from supervisor.scheduler.scheduler import Scheduler
from tests.supervisor.scheduler.simulation import Simulation

Step = tuple[str, ...]
"""What happens, and to what."""


class WorldPlan(NamedTuple):
    """What there is in a world, and what may fail."""

    requests: str = "aba"
    """The models of the requests, in the order in which they come."""
    nodes: tuple[str, ...] = (HEAD, "gpu2")
    slots: int = 1
    faults: tuple[str, ...] = ()
    memory: int = 0
    """Bytes of each node, if they are counted; each model needs 600."""
    pinned: str = ""
    """A model that is loaded and pinned before the first request."""


class SmallWorld(Simulation):
    """A simulation that says what can happen next. It has no twin: that takes time."""

    scheduler_type = Scheduler
    repeats = False
    """Whether it goes through a history that was checked before, except its last step."""

    def __init__(self, plan: WorldPlan) -> None:
        super().__init__(1, plan.slots, memory_reserve=0)
        self.plan = plan
        self.left = list(plan.faults)
        self.to_come = list(plan.requests)
        self.away: list[str] = []
        """Nodes that were lost."""
        if plan.memory:
            self.machine = {HOST: plan.memory}
            self.estimates = {model: MemoryEstimate({HOST: PlaceNeed(600)}) for model in plan.requests}
        for node in plan.nodes[1:]:
            self.join(node, machine=dict(self.machine))
        self.run_until_idle()
        if plan.pinned:
            self.load(plan.pinned, 700, pin=True)
            self.run_until_idle()

    def choices(self) -> Iterator[Step]:
        """Yield what can happen next."""
        if self.to_come:
            yield ("submit",)
        for worker in self.state.workers.values():
            if worker.state in (WorkerState.SPAWNED, WorkerState.CHECKING, WorkerState.LOADING, WorkerState.LEAVING):
                yield ("go on", worker.id)
        for key in sorted(key for worker in self.workers.values() for key in worker.running):
            yield ("finish", str(key.number))
        for fault in self.left:
            yield from ((fault, what) for what in self._targets(fault))

    def _targets(self, fault: str) -> list[str]:
        match fault:
            case "engine dies":
                return self.of_state(WorkerState.READY, WorkerState.DRAINING)
            case "load fails":
                return self.of_state(WorkerState.CHECKING, WorkerState.LOADING)
            case "worker dies":
                return list(self.state.workers)
            case "client leaves":
                return [str(key.number) for key in self.live]
            case "node is lost" | "node drains":
                return [node for node in self.plan.nodes[1:] if node in self.state.nodes]
            case "node is back":
                return self.away
            case "drain ends":
                return [name for name, node in self.state.nodes.items() if node.draining]
            case "unload":
                return [name for name, model in self.state.models.items() if model.worker is not None]
            case _:
                return [""]

    def take(self, step: Step) -> None:
        """Let something happen."""
        what, of = step[0], step[-1]
        if what in self.left:
            self.left.remove(what)
        match what:
            case "submit":
                self.submit(self.to_come.pop(0))
            case "go on":
                self._go_on(of)
            case "finish":
                self.finish(
                    next(key for each in self.workers.values() for key in each.running if key.number == int(of))
                )
            case _:
                self._fail(what, of)

    def _fail(self, what: str, of: str) -> None:
        match what:
            case "engine dies":
                self.engine_dies(of)
            case "load fails":
                self.load_fails(of)
            case "worker dies":
                self.worker_dies(of)
            case "client leaves":
                self.cancel(next(key for key in self.live if key.number == int(of)))
            case "node is lost":
                self.away.append(of)
                self.node_dies(of)
            case "node is back":
                self.away.remove(of)
                self.join(of, machine=dict(self.machine))
            case "node drains" | "drain ends":
                self.drain(of, draining=what == "node drains")
            case "unload":
                self.unload(of, 800)
            case "time passes":
                self.pass_time(6.0)

    def _go_on(self, worker: str) -> None:
        match self.state.workers[worker].state:
            case WorkerState.SPAWNED:
                self.hello(worker)
            case WorkerState.CHECKING:
                self.checked(worker)
            case WorkerState.LOADING:
                self.ready(worker)
            case _:
                self.worker_dies(worker)

    # ---- what must hold ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        if not self.repeats:
            super().check()

    def check_world(self) -> None:
        """Besides what every simulation checks: one engine for each model, memory, pins."""
        engines = [
            worker.model.key for worker in self.state.workers.values() if worker.counts_as_loaded and worker.model
        ]
        assert len(engines) == len(set(engines)), "a model is loaded twice"
        for name in self.plan.nodes if self.plan.memory else ():
            loaded = [w for w in self.state.workers.values() if w.node == name and w.counts_as_loaded]
            taken = sum(
                self.workers[w.id].held.get(HOST, 0) if w.state is WorkerState.LEAVING else w.need.get(HOST, 0)
                for w in loaded
            )
            assert taken <= self.plan.memory, f"more memory of {name} is taken than there is"
        assert self.state.counters.get("evictions", 0) == 0 or not self._evicted_pinned(), "a pinned model was evicted"

    def _evicted_pinned(self) -> bool:
        return any(note.event == "model evicted" and note.fields["model"] == self.plan.pinned for note in self.notes)

    def come_to_rest(self) -> None:
        """Let nothing fail any more, and no request come: everything that waits is answered."""
        self.to_come, self.left = [], []
        for _ in range(300):
            if self.advance():
                continue
            running = next((key for worker in self.workers.values() for key in worker.running), None)
            if running is not None:
                self.finish(running)
            elif self.live or self.calls:
                self.pass_time(31.0)
            else:
                return
        raise AssertionError(f"a request waits forever: {sorted(self.live)}, {self.calls}")

    def picture(self) -> object:
        """Return all that decides what happens later. Workers have other names in other histories."""
        state = self.state
        workers = sorted(state.workers, key=self._of_worker)  # equal ones differ in nothing but their names
        names = {worker: number for number, worker in enumerate(workers)}
        uses = sorted({model.last_use for model in state.models.values()})
        return (
            self.now,
            tuple(self.to_come),
            tuple(sorted(self.left)),
            tuple(sorted(self.away)),
            tuple(sorted((key.number, key.attempt) for key in self.live)),
            tuple(sorted(self.calls)),
            tuple(sorted((name, node.draining, node.memory.unknown) for name, node in state.nodes.items())),
            tuple(self._of_worker(worker) for worker in workers),
            tuple(
                (
                    *(model.key, model.state, model.keep_loaded, model.search.node, uses.index(model.last_use)),
                    names.get(model.worker.id) if model.worker else None,
                    tuple(sorted(key.number for key in model.grants)),
                    tuple(waiting.key.number for waiting in model.queue),
                    (len(model.loaders), len(model.unloaders), tuple(sorted(model.returning))),
                    (model.backoff.failures, model.backoff.failed_at, bool(model.cutoff), model.pending_spec is None),
                )
                for model in state.models.values()
            ),
        )

    def _of_worker(self, name: str) -> tuple[object, ...]:
        worker = self.state.workers[name]
        model = worker.model.key if worker.model else ""
        return worker.node, worker.state, model, worker.spawned_at, tuple(sorted(worker.held.items()))
