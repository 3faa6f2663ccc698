"""The scheduler's board: all that is loaded, running and waiting, and the few acts that change it. No I/O."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

from protocol.admin import Loaded
from protocol.failures import Failure
from protocol.ids import RequestKey
from protocol.recipes import ModelSpec
from protocol.staff import Leave
from protocol.work import Grant as Told
from protocol.work import Refused, Run
from supervisor.effects import Effect, Expect, Fetch, Kill, Note, Report, Send, Tell
from supervisor.lifecycle import State, Step
from supervisor.places import NEVER, Caller, Grant, Place, Seat, Waiting, refusal_for
from supervisor.restarts import Policy, Record


class Limits(NamedTuple):
    """How much may be loaded and may wait. Sizes in bytes, times in seconds."""

    places: int = 4
    queue_requests: int = 64
    queue_bytes: int = 64 * 1024 * 1024
    grace: float = 30.0
    restarts: Policy = Policy()
    spares: int = 1
    verbose: bool = False
    """Whether every grant is worth a line in the log."""


class Target(NamedTuple):
    """What a request's model name came to: ``spec`` is None while the model is not on this machine.

    ``pinned`` is what a load asks for, None if it says nothing about that; ``any``: however it is loaded.
    """

    name: str
    type: str
    spec: ModelSpec | None
    pinned: bool | None = None
    any: bool = False


class Board:
    """What the scheduler knows, and what it wants done: :meth:`effects` hands that out, once."""

    def __init__(self, limits: Limits, new_worker: Callable[[], str]) -> None:
        """``new_worker`` names the next worker process."""
        self.limits = limits
        self.new_worker = new_worker
        self.places: dict[str, Place] = {}
        self.seats: dict[str, Seat] = {}
        self.closing = False
        self.memory = 0
        """Bytes of memory free at the last check, 0 if unknown."""
        self.counters: dict[str, int] = {}
        self.former_use: dict[str, float] = {}
        """When models that have no place any more were used last."""
        self.nursery = Record(limits.restarts)
        """How well worker processes start at all."""
        self.order = itertools.count(1)
        """The order of arrival of everything that may have to wait."""
        self.settled = False
        """Whether nobody waits and nothing moves, so that requests and their ends need no look at the whole board."""
        self._out: list[Effect] = []

    def place(self, target: Target) -> Place:
        """Return the place of a model, made if need be; a new spec only counts while nothing is loaded."""
        place = self.places.get(target.name)
        if place is None:
            place = self.places[target.name] = Place(target.name, target.type, self.limits.restarts)
            place.last_use = self.former_use.pop(target.name, NEVER)
        if place.seat is None and target.spec is not None:
            place.spec = target.spec
            place.pinned = place.pinned or target.spec.pinned
        return place

    @property
    def granted(self) -> int:
        """Slots granted or lent in the whole house."""
        return sum(place.busy for place in self.places.values())

    @property
    def running(self) -> int:
        """Slots known to be in use in the whole house."""
        return sum(place.running for place in self.places.values())

    @property
    def queued(self) -> int:
        """Requests that wait in the whole house."""
        return sum(len(place.queue) for place in self.places.values())

    def latest(self, serves: Callable[[Place], bool]) -> Place | None:
        """Return the place used last, among those that have an engine and pass ``serves``."""
        loaded = [place for place in self.places.values() if place.seat and place.seat.serves and serves(place)]
        return max(loaded, key=lambda place: place.last_use, default=None)

    def used(self) -> list[str]:
        """Return the models that were ever used, whether they are still loaded or not, the one used last first."""
        use = self.former_use | {place.name: place.last_use for place in self.places.values()}
        return sorted((name for name in use if use[name] != NEVER), key=use.__getitem__, reverse=True)

    def forget_use(self, name: str) -> None:
        """Forget that a model was used: what will have its name is another one."""
        self.former_use.pop(name, None)
        if name in self.places:
            self.places[name].last_use = NEVER

    def effects(self) -> list[Effect]:
        """Hand out what is to be done, in order, and forget it."""
        out, self._out = self._out, []
        return out

    def emit(self, *effects: Effect) -> None:
        """Want something done."""
        self._out.extend(effects)

    def count(self, what: str) -> None:
        """Count something that an operator may ask about."""
        self.counters[what] = self.counters.get(what, 0) + 1

    def refuse(self, key: RequestKey, failure: Failure) -> None:
        """End an attempt (or a call, with attempt 0) before it reached a worker."""
        self.count(f"refused_{failure.code}")
        self.emit(Send(key.gateway, Refused(key.number, key.attempt, failure)))

    def grant(self, place: Place, seat: Seat, waiting: Waiting, weight: int, now: float) -> None:
        """Give ``weight`` slots of a seat to a request and send it there."""
        self.count("grants")
        place.grants[waiting.key] = Grant(weight, now, waiting.order)
        place.last_use = now
        if self.limits.verbose:
            told = {"request_id": waiting.ask.label, "model": place.name, "worker": seat.worker, "slots": weight}
            self.emit(Note("debug", "granted", {**told, "waited_s": round(now - waiting.since, 4)}))
        self.run(place, seat, waiting)

    def run(self, place: Place, seat: Seat, waiting: Waiting) -> None:
        """Send a request to a seat, and tell its gateway where it is."""
        gateway, number, attempt = waiting.key
        ask = waiting.ask
        run = Run(
            gateway, number, attempt, ask.model or place.name, ask.endpoint, ask.label, ask.stream, ask.spool, ask.query
        )
        self.emit(
            Send(seat.worker, run, waiting.payload),
            Tell(gateway, Told(number, attempt, seat.worker, place.name)),
        )

    def fetch(self, place: Place) -> None:
        """Want the model's files."""
        if not place.fetching:
            place.fetching = True
            self.emit(Fetch(place.name))

    def give_up(self, place: Place, failure: Failure) -> None:
        """Refuse everybody who waits for this model."""
        failure = refusal_for(place, failure)
        for waiting in place.take_all():
            self.refuse(waiting.key, failure)
        self.end_loads(place, failure)

    def end_loads(self, place: Place, failure: Failure) -> None:
        """Refuse everybody who asked for a load of this model; requests that wait for it wait on."""
        self.refuse_callers(place.loaders, refusal_for(place, failure))
        place.loaders.clear()
        place.respec = place.former = None

    def refuse_callers(self, callers: list[Caller], failure: Failure) -> None:
        """Tell those who asked for a load that it will not be."""
        for caller in callers:
            self.refuse(RequestKey(caller.peer, caller.number, 0), failure)

    def answer_loaded(self, place: Place, callers: list[Caller]) -> None:
        """Tell those who asked for the load that it is there."""
        spec = place.spec
        if spec is not None:
            for caller in callers:
                self.emit(Report(caller.peer, caller.number, Loaded(place.name, spec.checkpoint, spec.recipe)))

    def let_go(self, place: Place) -> None:
        """Take the worker back that only checks a model, or has: a spare again, unless its check may still take long."""
        seat = place.seat
        if seat is None or seat.holds_place:
            return
        seat.place = place.seat = None
        if seat.state is State.CHECKED:
            seat.step(Step.LET_GO)
        else:
            self.leave(seat)

    def why_leaving(self, place: Place) -> str:
        """Return why a model's engine is to end, for the log."""
        if self.closing:
            return "the server stops"
        if place.unloaders:
            return "unload was asked for"
        if place.respec:
            return "it is loaded again with other options"
        return "it works on for clients that are gone" if place.stuck and place.wanted else "it makes room"

    def forget_place(self, place: Place) -> None:
        """Forget a model of which nothing is left."""
        if place.forgettable():
            self.places.pop(place.name, None)
            if place.last_use != NEVER:
                self.former_use[place.name] = place.last_use

    def leave(self, seat: Seat, *, reason: str = "") -> None:
        """Tell a worker to leave; it is killed if it does not."""
        seat.step(Step.STOP)
        self.emit(Send(seat.worker, Leave(0.0, reason)), Expect(seat.worker, 5.0))

    def end(self, seat: Seat) -> None:
        """End a worker that nobody can tell anything yet."""
        seat.step(Step.STOP)
        self.emit(Kill(seat.worker))
