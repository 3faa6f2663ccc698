"""Random histories for the scheduler: whatever happens in whatever order, the world's promises hold."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from supervisor.lending import LONGEST_PAUSE_S
from supervisor.lifecycle import State
from tests.supervisor.world import World

MODELS = st.sampled_from("abc")
GATEWAYS = st.sampled_from(["g1", "g2"])


class House(RuleBasedStateMachine):
    @initialize(places=st.integers(1, 2), slots=st.sampled_from([2, 4]))
    def open(self, places: int, slots: int) -> None:
        self.world = World(places, slots, queue_requests=5)
        self.calls = 1000

    def pick(self, data: st.DataObject, what: list[object]) -> object:
        return data.draw(st.sampled_from(what))

    def running(self) -> list[object]:
        return [key for worker in self.world.workers.values() for key in worker.running]

    def workers(self, *states: State) -> list[str]:
        return self.world.of_state(*states)

    @rule(model=MODELS, gateway=GATEWAYS, weight=st.integers(1, 3), suspect=st.booleans())
    def ask(self, model: str, gateway: str, weight: int, suspect: bool) -> None:
        self.world.ask(model, gateway, weight=weight, suspect=suspect)

    @precondition(lambda self: self.world.live)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.world.cancel(self.pick(data, list(self.world.live)))

    @precondition(lambda self: self.running())
    @rule(data=st.data(), code=st.sampled_from(["", "", "", "returned", "backend_error"]))
    def finish(self, data: st.DataObject, code: str) -> None:
        self.world.finish(self.pick(data, self.running()), code)

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def cannot_stop(self, data: st.DataObject) -> None:
        self.world.cannot_stop(self.pick(data, self.running()))

    def leases(self) -> list[object]:
        return [(name, gateway) for name, worker in self.world.workers.items() for gateway in worker.leases]

    @precondition(lambda self: self.leases())
    @rule(data=st.data(), weight=st.integers(1, 3), times=st.integers(1, 3))
    def use_lease(self, data: st.DataObject, weight: int, times: int) -> None:
        for _ in range(times):
            self.world.use_lease(*self.pick(data, self.leases()), weight)

    @precondition(lambda self: self.leases())
    @rule(data=st.data())
    def tell_lease(self, data: st.DataObject) -> None:
        self.world.tell_lease(*self.pick(data, self.leases()))

    @precondition(lambda self: self.leases())
    @rule(data=st.data())
    def end_lease(self, data: st.DataObject) -> None:
        self.world.end_lease(*self.pick(data, self.leases()))

    @precondition(lambda self: self.leases())
    @rule(data=st.data())
    def end_lease_unheard(self, data: st.DataObject) -> None:
        self.world.end_lease_unheard(*self.pick(data, self.leases()))

    @precondition(lambda self: any(worker.unsaid for worker in self.world.workers.values()))
    @rule()
    def say_ends(self) -> None:
        for worker in list(self.world.workers):
            self.world.say_ends(worker)

    @rule()
    def advance(self) -> None:
        self.world.advance()

    @precondition(lambda self: self.workers(State.CHECKING, State.LOADING))
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        worker = self.pick(data, self.workers(State.CHECKING, State.LOADING))
        started = self.world.scheduler.seats[worker].state is State.LOADING
        self.world.load_fails(worker, started=started)

    @precondition(lambda self: self.workers(State.READY, State.DRAINING, State.STOPPING))
    @rule(data=st.data())
    def engine_dies(self, data: st.DataObject) -> None:
        self.world.engine_dies(self.pick(data, self.workers(State.READY, State.DRAINING, State.STOPPING)))

    @precondition(lambda self: self.world.scheduler.seats)
    @rule(data=st.data())
    def worker_dies(self, data: st.DataObject) -> None:
        self.world.worker_dies(self.pick(data, list(self.world.scheduler.seats)))

    @rule(gateway=GATEWAYS)
    def gateway_dies(self, gateway: str) -> None:
        self.world.gateway_dies(gateway)

    @rule(model=MODELS, ctx=st.sampled_from([1024, 2048]), pinned=st.just(False))
    def load(self, model: str, ctx: int, pinned: bool) -> None:
        self.calls += 1
        self.world.load(model, self.calls, options={"ctx_size": ctx}, pinned=pinned)

    @rule(model=MODELS)
    def unload(self, model: str) -> None:
        self.calls += 1
        self.world.unload(model, self.calls)

    @rule(seconds=st.sampled_from([0.03, 0.1, 1.0, 30.0]))
    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    def teardown(self) -> None:
        """Whatever happened: when the world turns benign, everybody gets an answer."""
        if not hasattr(self, "world"):
            return
        for _ in range(400):
            if self.world.advance():
                continue
            running = self.running()
            if running:
                self.world.finish(running[0])
            elif self.world.live:
                self.world.pass_time(61.0)
            else:
                break
        assert not self.world.live, "somebody waits for ever"
        self.world.end_all_leases()
        assert self.world.scheduler.granted == 0


class Lenders(House):
    """A house that is quiet again and again, so that it lends; and everything that can happen to leases."""

    @initialize(places=st.integers(1, 2), slots=st.sampled_from([4, 8]))
    def open(self, places: int, slots: int) -> None:
        super().open(places, slots)
        self.rush("g1", 2, 1, ended=True)

    @rule(gateway=GATEWAYS, times=st.integers(2, 4), straight=st.integers(0, 4), ended=st.booleans())
    def rush(self, gateway: str, times: int, straight: int, ended: bool) -> None:
        """All is done, and a gateway asks again and again; then it asks no more."""
        self.world.pass_time(LONGEST_PAUSE_S)
        if not self.workers(State.READY):
            self.world.ask("a")
        self.world.calm()
        for key in self.running()[1:]:
            self.world.finish(key)
        self.world.calm()
        for worker in self.workers(State.READY)[:1]:
            model = self.world.scheduler.seats[worker].place.name
            asked = [self.world.ask(model, gateway) for _ in range(times)]
            for key in asked if ended else []:
                if key in self.running():
                    self.world.finish(key)
            for _ in range(straight):
                self.world.use_lease(worker, gateway)

    @precondition(lambda self: self.leases())
    @rule(data=st.data(), times=st.integers(1, 2))
    def cross(self, data: st.DataObject, times: int) -> None:
        """A gateway asks while its lease is over and the house does not know it."""
        worker, gateway = self.pick(data, self.leases())
        self.world.end_lease_unheard(worker, gateway)
        for _ in range(times):
            self.world.ask(self.world.scheduler.seats[worker].place.name, gateway)

    @precondition(lambda self: self.workers(State.READY))
    @rule(gateway=GATEWAYS, times=st.integers(1, 3), ended=st.booleans())
    def unheard(self, gateway: str, times: int, ended: bool) -> None:
        """A worker has not read yet what was lent when requests end, and more are asked for."""
        worker = self.workers(State.READY)[0]
        self.world.workers[worker].deaf = True
        model = self.world.scheduler.seats[worker].place.name
        asked = [self.world.ask(model, gateway) for _ in range(times)]
        for key in asked if ended else []:
            if key in self.running():
                self.world.finish(key)

    @rule()
    def hear(self) -> None:
        for worker in list(self.world.workers):
            self.world.hear(worker)

    @precondition(lambda self: any(worker.recalls for worker in self.world.workers.values()))
    @rule()
    def answer_recall(self) -> None:
        self.world.answer_recall()


TestHistories = House.TestCase
TestHistories.settings = settings(
    max_examples=300, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLenders = Lenders.TestCase
TestLenders.settings = settings(TestHistories.settings, max_examples=400, stateful_step_count=25)
