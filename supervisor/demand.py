"""What gateways want of the scheduler: requests, loads, unloads, and that they are gone."""

from __future__ import annotations

from msgspec import structs

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.leases import Recall
from protocol.recipes import ModelSpec
from protocol.work import Ask, Cancel
from supervisor.board import Target
from supervisor.effects import Report, Send
from supervisor.lending import Lending
from supervisor.lifecycle import State
from supervisor.places import Caller, Place, Waiting, differs


class Demand(Lending):
    """Events of gateways and downloads."""

    def asked(self, key: RequestKey, ask: Ask, payload: bytes, target: Target, now: float) -> None:
        """A gateway wants a request run."""
        place = self.place(target)
        failure = self._refusal(place, ask, now)
        if failure:
            self.refuse(key, failure)
            return
        order = place.returning.pop((key.gateway, key.number), None) or next(self.order)
        waiting = Waiting(key, ask, payload, order, now)
        if self.settled and self._granted_at_once(place, waiting, now):
            return
        self.settled = False
        place.enqueue(waiting)
        if place.spec is None:
            self.fetch(place)

    def _granted_at_once(self, place: Place, waiting: Waiting, now: float) -> bool:
        """Grant, if the model is ready with free slots; for a board where nobody waits."""
        seat = place.seat
        if seat is None or seat.state is not State.READY or seat.facts is None or waiting.ask.suspect:
            return False
        slots = seat.facts.slots
        weight = min(max(1, waiting.ask.weight), slots)
        if place.busy + weight > slots:
            return False
        closely = place.follows_closely(now)
        self.grant(place, seat, waiting, weight, now)
        if closely and waiting.ask.model and waiting.ask.attempt == 1:
            self.lend(place, waiting.key, waiting.ask, now)
        return True

    def _refusal(self, place: Place, ask: Ask, now: float) -> Failure | None:
        if self.closing:
            return Failure(Code.DRAINING, "The server is shutting down", retry_after=self.limits.grace)
        if place.record.pause(now) and not (place.seat and place.seat.serves):
            return place.record.refusal(place.name, now)
        if ask.attempt > 1 and not ask.new:
            return None
        if len(place.queue) >= self.limits.queue_requests:
            what = f"{len(place.queue)} requests"
        elif place.queue and place.queued_bytes + ask.size > self.limits.queue_bytes:
            what = f"{place.queued_bytes} bytes"
        else:
            return None
        return Failure(
            Code.OVERLOADED,
            f"The queue of model {place.name} is full ({what} wait)",
            model=place.name,
            retry_after=place.wait_s(),
        )

    def read(self, key: RequestKey, ask: Ask, payload: bytes, place: Place) -> None:
        """A gateway wants to read an engine's state: no grant, no queue."""
        if place.seat is None or not place.seat.serves:
            self.refuse(key, Failure(Code.NOT_LOADED, f"Model {place.name} is not loaded", model=place.name))
            return
        self.run(place, place.seat, Waiting(key, ask, payload, 0, 0.0))

    def cancelled(self, key: RequestKey, reason: str) -> None:
        """Nobody wants this answer any more. Its grant ends with the worker's Idle, not now."""
        for place in self.places.values():
            lease = place.leases.get(key.gateway)
            if key in place.grants or (lease is not None and key in lease.running):
                if place.seat:
                    self.emit(Send(place.seat.worker, Cancel(*key, reason)))
                return
            if place.dequeue(key):
                return

    def unwanted(self, worker: str, key: RequestKey) -> None:
        """An engine has been working for a while on what nobody wants any more."""
        seat = self.seats.get(worker)
        place = seat.place if seat else None
        # What runs under a lease may not be known yet.
        if place is not None and (key in place.grants or key.gateway in place.leases):
            place.unwanted.add(key)
            self.settled = self.settled and not place.stuck

    def idle(self, key: RequestKey, code: str, now: float, seconds: float = 0.0) -> Place | None:
        """The engine has stopped working on an attempt. Returns its place if the grant was known.

        ``seconds``: how long it ran, if the grant is younger than that.
        """
        for place in self.places.values():
            grant = place.grants.pop(key, None)
            if grant is None:
                continue
            place.unwanted.discard(key)
            place.ended(now)
            if not code:
                place.served(seconds or now - grant.began)
            elif code == Code.RETURNED:
                place.returning[key.gateway, key.number] = grant.order
                self._returned(key, place.name)
            return place
        if code == Code.RETURNED:
            # A read has no grant, and its gateway waits all the same.
            self._returned(key, "")
        return None

    def _returned(self, key: RequestKey, model: str) -> None:
        self.refuse(key, Failure(Code.RETURNED, "The worker never saw the gateway", model=model))

    def load_asked(self, peer: str, number: int, target: Target, now: float) -> None:
        """Somebody wants the model loaded with just these options (an explicit wish forgives a backoff)."""
        known = self._refused_before(target, now)
        if known is not None:
            self.refuse(RequestKey(peer, number, 0), known)
            return
        place = self.place(target)
        caller = Caller(peer, number, next(self.order), None if target.any else target.spec)
        if self.closing:
            self.refuse(RequestKey(peer, number, 0), Failure(Code.DRAINING, "The server is shutting down"))
            return
        if place.respec is None and place.former is None:
            place.former_pinned = place.pinned
        if target.pinned is not None:
            place.pinned = target.pinned
        if target.spec is not None and place.spec is not None and place.seat and differs(target.spec, place.spec):
            place.respec = target.spec
        place.record.ready()
        if place.seat and place.seat.state is State.READY and not place.respec:
            self.answer_loaded(place, [caller])
            place.last_use = now
            return
        place.loaders.append(caller)
        if place.spec is None:
            self.fetch(place)

    def _refused_before(self, target: Target, now: float) -> Failure | None:
        """Return why no good engine is ended for these options, if its successor would not start a moment ago."""
        place = self.places.get(target.name)
        known = place.refusal if place is not None and (place.seat is not None or place.wanted) else None
        if known is None or target.spec is None or now >= known.until or differs(target.spec, known.spec):
            return None
        return structs.replace(known.failure, retry_after=known.until - now)

    def unload_asked(self, peer: str, number: int, name: str) -> bool:
        """Somebody wants the model gone; return False if it is neither loaded nor on its way.

        Running requests end first, and those that wait for their turn have it loaded again.  A load that is under way,
        from its first moment on, ends here, and everybody who waits for it is told so.
        """
        place = self.places.get(name)
        if place is None or not place.unloadable:
            return False
        place.wanted = False
        place.refusal = None
        failure = Failure(Code.UNLOADED, f"Model {name} was unloaded while it was loading")
        if place.seat is not None and place.seat.serves:
            self.end_loads(place, failure)
        else:
            self.give_up(place, failure)
        # What was only being checked has no engine whose end anybody would have to wait for.
        self.let_go(place)
        if place.seat is None:
            self.emit(Report(peer, number, [name]))
            self.forget_place(place)
            return True
        place.unloaders.append(Caller(peer, number, 0))
        if place.seat.state in (State.LOADING, State.FAILED):
            self.leave(place.seat)
        return True

    def forget(self, peer: str, number: int) -> None:
        """A caller hung up: what it began goes on, but nobody waits for it."""
        for place in self.places.values():
            place.loaders = [c for c in place.loaders if (c.peer, c.number) != (peer, number)]
            place.unloaders = [c for c in place.unloaders if (c.peer, c.number) != (peer, number)]

    def fetched(self, name: str, spec: ModelSpec | None, failure: Failure | None, now: float) -> None:
        """The download ended, one way or the other; one that failed is not begun anew by each request."""
        place = self.places.get(name)
        if place is None:
            return
        place.fetching = False
        known = place.record.failure
        if spec is not None:
            if known is not None and known.code is Code.DOWNLOAD_FAILED:
                place.record.ready()
            if place.seat is None:
                place.spec = spec
        elif failure is not None:
            if failure.code is Code.DOWNLOAD_FAILED:
                place.record.load_failed(failure, now)
                failure = structs.replace(failure, retry_after=max(failure.retry_after, place.record.pause(now)))
            self.give_up(place, failure)

    def peer_gone(self, gateway: str) -> None:
        """A gateway is gone: nothing of it waits, and what runs for it is stopped."""
        for place in self.places.values():
            for waiting in [waiting for waiting in place.queue if waiting.key.gateway == gateway]:
                place.dequeue(waiting.key)
            place.loaders = [caller for caller in place.loaders if caller.peer != gateway]
            place.unloaders = [caller for caller in place.unloaders if caller.peer != gateway]
            place.returning = {who: order for who, order in place.returning.items() if who[0] != gateway}
            for key in place.grants:
                if key.gateway == gateway and place.seat:
                    self.emit(Send(place.seat.worker, Cancel(*key, Code.GATEWAY_GONE)))
            lease = place.leases.get(gateway)
            if lease is not None and place.seat:
                lease.orphaned = lease.recalled = True
                self.emit(Send(place.seat.worker, Recall(gateway, lease.number)))

    def close(self) -> None:
        """Take nothing new, refuse who waits; what runs goes on."""
        self.closing = True
        for place in self.places.values():
            place.wanted = False
            self.give_up(place, Failure(Code.DRAINING, "The server is shutting down", retry_after=self.limits.grace))
