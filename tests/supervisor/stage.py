"""A stage for the scheduler: plays its effects with workers that do as they are told. No process, no socket, no clock."""

from __future__ import annotations

import itertools
from collections import Counter

from protocol.failures import Failure
from protocol.ids import RequestKey
from protocol.leases import Lend, Recall
from protocol.recipes import ModelSpec
from protocol.staff import Check, Leave, Load
from protocol.work import Cancel, Refused, Run
from supervisor.board import Limits
from supervisor.effects import Effect, Expect, Fetch, Kill, Note, Report, Send, Spawn, Tell
from supervisor.lifecycle import State
from supervisor.scheduler import Scheduler
from tests.supervisor import checks
from tests.supervisor.worker import Worker

SLOTS = 2


def spec(name: str, **more: object) -> ModelSpec:
    """Return a model; the engine of one that is called c keeps nothing between requests."""
    more = {"restartable": name == "c", **more}
    return ModelSpec(name, f"checkpoint/{name}", "llamacpp", "cpu", "llm", f"/models/{name}.gguf", **more)


class Stage:
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
                self.deliver(peer, message)
            case Report(peer, number, report):
                assert (peer, number) not in self.reports, "answered twice"
                self.reports[peer, number] = report
            case Fetch(model):
                self.fetches.append(model)
            case Note():
                self.notes.append(effect)
            case Expect() | Kill() | Tell():
                pass

    def deliver(self, peer: str, message: object) -> None:
        match message:
            case Run(gateway, number, attempt):
                key = RequestKey(gateway, number, attempt)
                assert key in self.live, "an ended request was started"
                self.workers[peer].running.append(key)
                self.order.append(key)
            case Lend() | Recall() if self.workers[peer].deaf:
                self.workers[peer].unheard.append(message)
            case Lend():
                self.workers[peer].lent(message)
            case Recall():
                self.workers[peer].recalls.append(message)
            case Leave():
                its = self.workers[peer]
                assert its.unwanted.issuperset(its.running), "a worker was told to leave while somebody waits for it"
                assert not self.workers[peer].leases, "a worker was told to leave while its slots are lent"
                self.workers[peer].told.append(message)
            case Check() | Load() | Cancel():
                self.workers[peer].told.append(message)
            case Refused(number, attempt, failure):
                key = RequestKey(peer, number, attempt)
                self.refusals[key] = failure
                if attempt:
                    self.end(key)
            case _:
                raise AssertionError(message)

    def end(self, key: RequestKey) -> None:
        self.ended[key] += 1
        self.live.pop(key, None)

    def of_state(self, *states: State) -> list[str]:
        return [seat.worker for seat in self.scheduler.seats.values() if seat.state in states]

    def serving(self, model: str) -> str:
        seat = self.scheduler.places[model].seat
        assert seat is not None
        return seat.worker

    def check(self) -> None:
        """Compare what the scheduler believes with what the workers are really doing."""
        checks.places(self.scheduler, self.workers, self.slots)
        checks.requests(self.scheduler, self.workers, self.ended, self.live)
