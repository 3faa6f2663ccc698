"""A world for the scheduler: plays its effects with workers that do as they are told, and checks every promise.

No process, no socket, no clock: a history of events goes in, and after each one the world compares what the
scheduler believes with what its workers are really doing.
"""

from __future__ import annotations

import itertools
from collections import Counter

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.leases import Lend, Recall, Used
from protocol.recipes import ModelSpec
from protocol.staff import Check, Leave, Load, Ready
from protocol.work import Ask, Cancel, Refused, Run
from supervisor.board import Limits, Target
from supervisor.effects import Effect, Expect, Fetch, Kill, Note, Report, Send, Spawn, Tell
from supervisor.lifecycle import State
from supervisor.scheduler import Scheduler

SLOTS = 2


def spec(name: str, **more: object) -> ModelSpec:
    return ModelSpec(name, f"checkpoint/{name}", "llamacpp", "cpu", "llm", f"/models/{name}.gguf", **more)


class Lease:
    """What a worker knows of a lease."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.slots = 0
        self.names: set[tuple[str, str]] = set()
        self.runs: dict[RequestKey, int] = {}


class Worker:
    def __init__(self) -> None:
        self.told: list[object] = []
        self.running: list[RequestKey] = []
        self.leases: dict[str, Lease] = {}
        self.over = 0
        self.recalls: list[Recall] = []
        self.unsaid: list[tuple[str, int, list[Used]]] = []
        """Ends of leases that the scheduler has not heard of yet: gateway, number, what still runs."""
        self.deaf = False
        self.unheard: list[object] = []
        """What the scheduler said of leases while it was deaf."""

    @property
    def leased(self) -> dict[RequestKey, int]:
        return {key: weight for lease in self.leases.values() for key, weight in lease.runs.items()}


class World:
    def __init__(self, places: int = 1, slots: int = SLOTS, **limits: object) -> None:
        self.now = 0.0
        self.slots = slots
        names = itertools.count(1)
        self.scheduler = Scheduler(Limits(places=places, **limits), lambda: f"w{next(names)}")
        self.workers: dict[str, Worker] = {}
        self.ended: Counter[RequestKey] = Counter()
        self.refusals: dict[RequestKey, Failure] = {}
        self.reports: dict[tuple[str, int], object] = {}
        self.live: dict[RequestKey, str] = {}
        self.order: list[RequestKey] = []
        """The order in which requests reached a worker."""
        self.fetches: list[str] = []
        self.notes: list[Note] = []
        self._numbers = itertools.count(1)
        self.settle()

    # ---- what happens ----------------------------------------------------------------------------------------

    def ask(
        self,
        model: str,
        gateway: str = "g1",
        *,
        weight: int = 1,
        suspect: bool = False,
        size: int = 10,
        endpoint: str = "chat/completions",
    ) -> RequestKey:
        key = RequestKey(gateway, next(self._numbers), 2 if suspect else 1)
        self.live[key] = model
        ask = Ask(key.number, key.attempt, model, endpoint, "label", weight, size, suspect=suspect)
        self.scheduler.asked(key, ask, b"", Target(model, "llm", spec(model)), self.now)
        self.settle(light=True)
        return key

    def retry(self, key: RequestKey) -> RequestKey:
        again = RequestKey(key.gateway, key.number, key.attempt + 1)
        model = self.live[again] = "a"
        ask = Ask(key.number, again.attempt, model, "chat/completions", "label", suspect=True)
        self.scheduler.asked(again, ask, b"", Target(model, "llm", spec(model)), self.now)
        self.settle(light=True)
        return again

    def cancel(self, key: RequestKey) -> None:
        self.scheduler.cancelled(key, "client gone")
        waiting = any(w.key == key for place in self.scheduler.places.values() for w in place.queue)
        assert not waiting
        if not any(key in worker.running for worker in self.workers.values()):
            self._end(key)
        self.settle(light=True)

    def finish(self, key: RequestKey, code: str = "") -> None:
        name, worker = next((name, worker) for name, worker in self.workers.items() if key in worker.running)
        self.say_ends(name)
        worker.running.remove(key)
        lease = next((lease for lease in worker.leases.values() if lease.runs.pop(key, None)), None)
        if code != Code.RETURNED:  # the refusal that follows ends it
            self._end(key)
        if self.scheduler.idle(key, code, self.now) is None:
            seconds = 0.1 if lease is not None and not code else 0.0
            known = self.scheduler.lease_idle(name, key, seconds, self.now, under=lease is not None)
            assert known is not None
        self.settle(light=True)

    def use_lease(self, worker: str, gateway: str, weight: int = 1) -> RequestKey | None:
        """A gateway sends a request to a worker itself; None if the worker does not take it."""
        its = self.workers[worker]
        lease = its.leases.get(gateway)
        if lease is None or sum(lease.runs.values()) + weight > lease.slots:
            return None
        key = RequestKey(gateway, next(self._numbers), 1)
        seat = self.scheduler.seats[worker]
        assert seat.place is not None
        self.live[key] = seat.place.name
        lease.runs[key] = weight
        its.running.append(key)
        self.check()
        return key

    def tell_lease(self, worker: str, gateway: str) -> None:
        """A worker says what has been running for a while."""
        self.say_ends(worker)
        lease = self.workers[worker].leases[gateway]
        runs = [Used(key.number, key.attempt, weight) for key, weight in lease.runs.items()]
        self.scheduler.lease_used(worker, gateway, lease.number, runs)
        self.settle(light=True)

    def end_lease(self, worker: str, gateway: str) -> None:
        """A worker ends a lease, asked or not."""
        self.end_lease_unheard(worker, gateway)
        self.say_ends(worker)

    def end_lease_unheard(self, worker: str, gateway: str) -> None:
        """A worker ends a lease, and its word is under way while other things happen."""
        its = self.workers[worker]
        lease = its.leases.pop(gateway)
        its.over = max(its.over, lease.number)
        runs = [Used(key.number, key.attempt, weight) for key, weight in lease.runs.items()]
        its.unsaid.append((gateway, lease.number, runs))
        self.check()

    def say_ends(self, worker: str) -> bool:
        """The scheduler hears of the leases that a worker has ended; return whether there were any."""
        unsaid = self.workers[worker].unsaid
        heard = len(unsaid)
        while unsaid:
            self.scheduler.lease_ended(worker, *unsaid.pop(0), self.now)
            self.settle(light=True)
        return heard > 0

    def hear(self, worker: str) -> bool:
        """A worker reads what was said of leases meanwhile; return whether there was anything."""
        its = self.workers[worker]
        unheard, its.unheard, its.deaf = its.unheard, [], False
        for message in unheard:
            self._deliver(worker, message)
        self.check()
        return bool(unheard)

    def end_all_leases(self) -> None:
        for name, worker in list(self.workers.items()):
            self.hear(name)
            self.say_ends(name)
            for gateway in list(worker.leases):
                self.end_lease(name, gateway)

    def load(
        self, model: str, number: int = 900, *, plain: bool = False, pin: bool | None = None, **more: object
    ) -> None:
        """``plain``: with whatever options; ``pin``: what the call says of that."""
        self.scheduler.load_asked("g1", number, Target(model, "llm", spec(model, **more), pin, plain), self.now)
        self.settle()

    def unload(self, model: str, number: int = 901) -> bool:
        done = self.scheduler.unload_asked("g1", number, model)
        self.settle()
        return done

    def hello(self, worker: str) -> None:
        self.scheduler.hello(worker)
        self.settle()

    def checked(self, worker: str, need: int = 0, available: int = 0) -> None:
        self.scheduler.checked(worker, need, available)
        self.settle()

    def ready(self, worker: str) -> None:
        self.scheduler.ready(worker, Ready(self.slots, 4096, 1, "http://127.0.0.1:1", 0.1), self.now)
        self.settle()

    def load_fails(self, worker: str, *, started: bool = True) -> None:
        self.scheduler.load_failed(worker, Failure(Code.LOAD_FAILED, "no"), started, self.now)
        self.settle()

    def engine_dies(self, worker: str) -> list[RequestKey]:
        self.say_ends(worker)
        self.hear(worker)
        lost = self.workers[worker].running
        self.workers[worker].running = []
        self._no_leases(self.workers[worker])
        for key in lost:
            self._end(key)
        self.scheduler.engine_died(worker, Failure(Code.BACKEND_DIED, "SIGKILL"), self.now)
        self.settle()
        return lost

    def _no_leases(self, worker: Worker) -> None:
        worker.over = max([worker.over, *(lease.number for lease in worker.leases.values())])
        worker.leases.clear()
        worker.recalls.clear()

    def worker_dies(self, worker: str) -> list[RequestKey]:
        lost = self.workers.pop(worker).running
        for key in lost:
            self._end(key)
        self.scheduler.worker_gone(worker, Failure(Code.WORKER_GONE, "SIGKILL"), self.now)
        self.settle()
        return lost

    def gateway_dies(self, gateway: str) -> None:
        self.scheduler.peer_gone(gateway)
        for key in [key for key in self.live if key.gateway == gateway]:
            if not any(key in worker.running for worker in self.workers.values()):
                self._end(key)
        self.settle()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.settle()

    # ---- what the scheduler wants ----------------------------------------------------------------------------

    def settle(self, *, light: bool = False) -> None:
        if light:
            self.scheduler.go_on_unless_settled(self.now)
        else:
            self.scheduler.go_on(self.now)
        for effect in self.scheduler.effects():
            self._play(effect)
        if self.scheduler.settled:
            self.scheduler.go_on(self.now)
            assert not self.scheduler.effects(), "a settled board had something to do"
        self.check()

    def _play(self, effect: Effect) -> None:
        match effect:
            case Spawn(worker):
                self.workers[worker] = Worker()
            case Send(peer, message, _):
                self._deliver(peer, message)
            case Report(peer, number, report):
                assert (peer, number) not in self.reports, "answered twice"
                self.reports[peer, number] = report
            case Fetch(model):
                self.fetches.append(model)
            case Note():
                self.notes.append(effect)
            case Expect() | Kill() | Tell():
                pass

    def _deliver(self, peer: str, message: object) -> None:
        match message:
            case Run(gateway, number, attempt):
                key = RequestKey(gateway, number, attempt)
                assert key in self.live, "an ended request was started"
                self.workers[peer].running.append(key)
                self.order.append(key)
            case Lend() | Recall() if self.workers[peer].deaf:
                self.workers[peer].unheard.append(message)
            case Lend():
                self._lent(self.workers[peer], message)
            case Recall():
                self.workers[peer].recalls.append(message)
            case Leave():
                assert not self.workers[peer].running, "a worker was told to leave while it works"
                assert not self.workers[peer].leases, "a worker was told to leave while its slots are lent"
                self.workers[peer].told.append(message)
            case Check() | Load() | Cancel():
                self.workers[peer].told.append(message)
            case Refused(number, attempt, failure):
                key = RequestKey(peer, number, attempt)
                self.refusals[key] = failure
                if attempt:
                    self._end(key)
            case _:
                raise AssertionError(message)

    def _lent(self, worker: Worker, lend: Lend) -> None:
        lease = worker.leases.get(lend.gateway)
        if lease is None and lend.lease > worker.over:
            lease = worker.leases[lend.gateway] = Lease(lend.lease)
        if lease is not None and lease.number == lend.lease:
            assert lend.slots >= lease.slots, "a lease became smaller"
            lease.slots = lend.slots
            lease.names.add((lend.name, lend.endpoint))
            key = RequestKey(lend.gateway, lend.number, lend.attempt)
            if key in worker.running:  # else it has ended
                lease.runs[key] = lend.weight
            assert sum(lease.runs.values()) <= lease.slots

    def _end(self, key: RequestKey) -> None:
        self.ended[key] += 1
        self.live.pop(key, None)

    # ---- what must always hold -------------------------------------------------------------------------------

    def check(self) -> None:
        scheduler = self.scheduler
        for place in scheduler.places.values():
            seat = place.seat
            worker = self.workers.get(seat.worker, Worker()) if seat else Worker()
            granted = {key: grant.weight for key, grant in place.grants.items()}
            leased = dict(worker.leased)
            for gateway, _, runs in worker.unsaid:
                leased |= {RequestKey(gateway, run.number, run.attempt): run.weight for run in runs}
                leased |= place.leases[gateway].running
            if worker.unheard:
                leased |= {key: weight for lease in place.leases.values() for key, weight in lease.running.items()}
            assert not granted.keys() & leased.keys(), f"{place.name}: a request has two grants"
            known = granted | leased
            assert known.keys() == set(worker.running), f"{place.name}: grants differ from what the engine does"
            assert place.busy <= self.slots
            assert sum(known.values()) <= place.busy, f"{place.name}: more runs than was granted and lent"
            for gateway, lease in worker.leases.items():
                if worker.unheard:
                    assert place.leases[gateway].slots >= lease.slots
                    continue
                assert place.leases[gateway].running.items() <= lease.runs.items()
                assert place.leases[gateway].number == lease.number
                assert place.leases[gateway].slots == lease.slots
            assert place.queued_bytes == sum(waiting.ask.size for waiting in place.queue)
            orders = [waiting.order for waiting in place.queue]
            assert orders == sorted(orders)
        holding = [seat for seat in scheduler.seats.values() if seat.holds_place]
        assert len(holding) <= scheduler.limits.places
        assert all(count == 1 for count in self.ended.values()), "ended twice"
        queued = {waiting.key for place in scheduler.places.values() for waiting in place.queue}
        running = {key for worker in self.workers.values() for key in worker.running}
        assert set(self.live) == queued | running, "a request is in no hand"

    def of_state(self, *states: State) -> list[str]:
        return [seat.worker for seat in self.scheduler.seats.values() if seat.state in states]

    def serving(self, model: str) -> str:
        seat = self.scheduler.places[model].seat
        assert seat is not None
        return seat.worker

    def advance(self) -> bool:
        """Let every worker do the next thing it was told, benignly; return whether anything happened."""
        for seat in list(self.scheduler.seats.values()):
            match seat.state:
                case State.SPAWNED:
                    self.hello(seat.worker)
                case State.CHECKING:
                    self.checked(seat.worker)
                case State.LOADING:
                    self.ready(seat.worker)
                case State.STOPPING if not self.workers[seat.worker].running:
                    self.worker_dies(seat.worker)
                case _:
                    continue
            return True
        names = list(self.workers)
        return any(self.say_ends(name) or self.hear(name) for name in names) or self.answer_recall()

    def answer_recall(self) -> bool:
        """Let a worker that was told to end a lease do so; return whether there is one."""
        for name, worker in self.workers.items():
            while worker.recalls:
                recall = worker.recalls.pop(0)
                lease = worker.leases.get(recall.gateway)
                if lease is not None and lease.number == recall.lease:
                    self.end_lease(name, recall.gateway)
                    return True
        return False

    def calm(self) -> None:
        """Let the workers go on until nothing moves, without ending any request."""
        for _ in range(1000):
            if not self.advance():
                return
        raise AssertionError("the house does not come to rest")


def loaded(*models: str, places: int = 1, **limits: object) -> World:
    world = World(places, **limits)
    for index, model in enumerate(models):
        world.load(model, 500 + index)
        world.calm()
    return world
