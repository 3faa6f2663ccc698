"""A world for the scheduler: what may happen in it, one method each, and how it goes on when nothing bad does.

A history of events goes in, and after each one everything that must hold is checked.
"""

from __future__ import annotations

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.leases import Used
from protocol.staff import Ready
from protocol.work import Ask
from supervisor.board import Target
from supervisor.lifecycle import State
from tests.supervisor.stage import Stage, spec


class World(Stage):
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
            self.end(key)
        self.settle(light=True)

    def cannot_stop(self, key: RequestKey) -> None:
        """Nobody wants it any more, and the engine works on; its gateway told the worker, if nobody else knows of it."""
        name, worker = next((name, worker) for name, worker in self.workers.items() if key in worker.running)
        self.cancel(key)
        self.say_ends(name)
        worker.unwanted.add(key)
        self.scheduler.unwanted(name, key)
        self.settle(light=True)

    def finish(self, key: RequestKey, code: str = "") -> None:
        name, worker = next((name, worker) for name, worker in self.workers.items() if key in worker.running)
        self.say_ends(name)
        worker.running.remove(key)
        lease = next((lease for lease in worker.leases.values() if lease.runs.pop(key, None)), None)
        if code != Code.RETURNED:  # the refusal that follows ends it
            self.end(key)
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
            self.deliver(worker, message)
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
        place = self.scheduler.places.get(model)
        there = place is not None and (place.seat is not None or place.wanted)
        waiting = place is not None and bool(place.queue or place.loaders)
        done = self.scheduler.unload_asked("g1", number, model)
        assert done == (there or waiting)
        place = self.scheduler.places.get(model)
        if place is not None:
            assert not place.loaders, "somebody waits for a load that was ended"
            assert place.seat is None or place.seat.serves or place.seat.state is State.STOPPING
            assert not place.queue or place.seat is not None
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
        self.workers[worker].forget_leases()
        for key in lost:
            self.end(key)
        self.scheduler.engine_died(worker, Failure(Code.BACKEND_DIED, "SIGKILL"), self.now)
        self.settle()
        return lost

    def worker_dies(self, worker: str) -> list[RequestKey]:
        lost = self.workers.pop(worker).running
        for key in lost:
            self.end(key)
        self.scheduler.worker_gone(worker, Failure(Code.WORKER_GONE, "SIGKILL"), self.now)
        self.settle()
        return lost

    def gateway_dies(self, gateway: str) -> None:
        self.scheduler.peer_gone(gateway)
        for key in [key for key in self.live if key.gateway == gateway]:
            if not any(key in worker.running for worker in self.workers.values()):
                self.end(key)
        self.settle()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.settle()

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
                case State.STOPPING:
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
