"""What workers tell the scheduler: that they are there, what they found, that they or their engines are gone."""

from __future__ import annotations

from typing import Final

from msgspec import structs

from protocol.failures import Code, Failure
from protocol.recipes import ModelSpec
from protocol.staff import Ready
from supervisor.board import Board
from supervisor.effects import Note, Report
from supervisor.lifecycle import State, Step
from supervisor.places import Place, Refusal, differs, refusal_for

_STILLBORN: Final = 3
"""Worker processes in a row that ended before Hello, until those who wait are told."""


class Supply(Board):
    """Events of workers."""

    def hello(self, worker: str) -> None:
        """A worker process is there and knows nothing yet."""
        seat = self.seats[worker]
        if seat.state is State.SPAWNED:  # else it was ended while it was on its way
            seat.step(Step.HELLO)
            self.nursery.ready()

    def checked(self, worker: str, need: int, available: int) -> None:
        """Nothing speaks against trying to load."""
        seat = self.seats[worker]
        if seat.state is not State.CHECKING:
            return
        seat.step(Step.CHECKED)
        if seat.place is not None:
            seat.memory = max(need, seat.place.memory)
        self.memory = available

    def ready(self, worker: str, facts: Ready, now: float) -> None:
        """The engine answers."""
        seat = self.seats[worker]
        if seat.state is not State.LOADING or seat.place is None:
            return
        place = seat.place
        seat.step(Step.READY)
        seat.facts = facts
        seat.memory = place.memory = max(facts.rss, 0) or seat.memory
        place.record.ready()
        self.memory = max(1, self.memory - seat.memory) if self.memory else 0
        place.wanted = True
        place.former = None
        place.last_use = now
        place.cutoff = next(self.order)
        self.count("loads")
        self.emit(Note("info", "model ready", {"model": place.name, "worker": worker, **_shown(facts)}))
        spec = place.spec
        served = [caller for caller in place.loaders if not place.respec or _content(caller.spec, spec)]
        self.answer_loaded(place, served)
        place.loaders = [caller for caller in place.loaders if caller not in served]

    def load_failed(self, worker: str, failure: Failure, started: bool, now: float) -> None:
        """The check or the start did not succeed: everybody who waited is told why."""
        seat = self.seats[worker]
        place = seat.place
        if place is None or seat.state not in (State.CHECKING, State.LOADING):
            return
        failure = refusal_for(place, failure)
        self.count("load_failures")
        back = place.former is not None and not self.closing
        if started or seat.state is State.LOADING:
            seat.step(Step.LOAD_FAILED)
            if not back:
                place.record.load_failed(failure, now)
            pause = place.record.pause(now)
            self.leave(seat)
        else:
            seat.step(Step.CHECK_FAILED)
            pause = self.limits.restarts.first
            place.wanted = False
        seat.place = None
        place.seat = None
        fields = {"model": place.name, "worker": worker, "code": failure.code, "reason": failure.message}
        if failure.detail:
            fields["detail"] = failure.detail
        level = "error" if failure.http_status >= 500 else "warning"
        if back:
            self.emit(Note(level, "load failed, it keeps its former options", fields))
            self._as_before(place, failure, now)
            return
        self.emit(Note(level, "load failed", {**fields, "retry_in": round(pause, 3)}))
        self.give_up(place, structs.replace(failure, retry_after=pause) if failure.http_status == 503 else failure)

    def _as_before(self, place: Place, failure: Failure, now: float) -> None:
        """Only who asked for these options hears that they are none; who waits for the model waits on."""
        failed, wishes = place.spec, place.loaders
        refused = [caller for caller in wishes if caller.spec is not None and _content(caller.spec, failed)]
        place.loaders = [caller for caller in wishes if caller not in refused]
        if place.respec is not None:
            place.spec, place.respec = place.respec, None
        else:
            place.spec, place.former, place.pinned = place.former, None, place.former_pinned
        place.wanted = True
        what = f"{failure.message}; it keeps its former options"
        pause = self.limits.restarts.most if failure.http_status == 503 else 0.0
        failure = structs.replace(failure, message=what, retry_after=pause)
        if pause and failed is not None:
            # Whoever asks again by itself would end a good engine each time.
            place.refusal = Refusal(failed, failure, now + pause)
        self.refuse_callers(refused, failure)

    def engine_died(self, worker: str, failure: Failure, now: float) -> None:
        """The engine of a ready model is gone; the worker told the gateways and holds no grant any more."""
        seat = self.seats[worker]
        if seat.place is None:
            return
        if not seat.serves:  # it was told to leave meanwhile, and what it worked on nobody wants
            seat.place.end_runs()
            return
        draining = seat.state is State.DRAINING
        seat.step(Step.DIED)
        self._lost(seat.place, failure, now, leaving=draining)
        if draining or not seat.place.wanted:
            self.leave(seat)

    def _lost(self, place: Place, failure: Failure, now: float, *, leaving: bool) -> None:
        self.count("engine_deaths")
        place.returning = {
            (key.gateway, key.number): lease.number for lease in place.leases.values() for key in lease.running
        } | {(key.gateway, key.number): grant.order for key, grant in place.grants.items()}
        place.end_runs()
        self._died(place, failure, now, leaving=leaving)

    def _died(self, place: Place, failure: Failure, now: float, *, leaving: bool = False) -> None:
        """Let it be tried again at once, unless that happened too often."""
        failure = refusal_for(place, failure)
        fields = {"model": place.name, "reason": failure.message}
        if not place.record.died(failure, now):
            self.emit(Note("error", "engine lost too often, it is not started again", fields))
            place.wanted = False
            self.give_up(place, place.record.refusal(place.name, now))
        elif leaving or self.closing:
            self.emit(Note("warning", "engine lost, it was to leave", {**fields, "why": self.why_leaving(place)}))
        elif place.wanted or place.order is not None:
            self.emit(Note("warning", "engine lost, it is started again", fields))
        else:
            self.emit(Note("warning", "engine lost, nobody wants it", fields))

    def worker_gone(self, worker: str, failure: Failure, now: float) -> None:
        """The process is gone, whatever it was doing."""
        seat = self.seats.pop(worker, None)
        if seat is None:
            return
        before = seat.state
        seat.step(Step.GONE)
        place = seat.place
        if before is State.SPAWNED and not self.closing:
            self._stillborn(failure, now)
        if place is None or place.seat is not seat:
            return
        place.seat = None
        self.memory += seat.memory if self.memory else 0
        if before in (State.READY, State.DRAINING):
            self._lost(place, failure, now, leaving=before is State.DRAINING)
            place.wanted = place.wanted and before is State.READY
        elif before in (State.CHECKING, State.CHECKED, State.LOADING):
            # What is told about a model comes from its worker; the worker's own death says nothing about it.
            self._died(place, failure, now)
        elif before is State.STOPPING:
            place.end_runs()
        for caller in place.unloaders:
            self.emit(Report(caller.peer, caller.number, [place.name]))
        place.unloaders.clear()
        self.forget_place(place)

    def _stillborn(self, failure: Failure, now: float) -> None:
        """Not even a worker process starts: pause, and do not let anybody wait for one that never comes."""
        self.nursery.load_failed(failure, now)
        if self.nursery.failures < _STILLBORN:
            return
        reason = "Worker processes do not start; see the log"
        for place in self.places.values():
            if place.seat is None:
                pause = self.nursery.pause(now)
                self.give_up(place, Failure(Code.LOAD_FAILED, reason, retry_after=pause, detail=failure.message))


def _content(wanted: ModelSpec | None, spec: ModelSpec | None) -> bool:
    """Return whether a model that is loaded as ``spec`` says is loaded as was ``wanted``."""
    return wanted is None or spec is None or not differs(wanted, spec)


def _shown(facts: Ready) -> dict[str, object]:
    return {
        "engine_pid": facts.engine_pid,
        "version": facts.version,
        "slots": facts.slots,
        "context": facts.context,
        "seconds": round(facts.seconds, 3),
    }
