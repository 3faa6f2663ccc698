"""What gateways want of the scheduler: requests, loads, unloads, and that they are gone."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.admin import OptionValue
from protocol.messages.leases import RevokeLease
from protocol.messages.work import Cancel, SubmitRequest
from protocol.models.recipes import ModelSpec
from supervisor.scheduler import spare_workers
from supervisor.scheduler.effects import AnswerCall, SendMessage
from supervisor.scheduler.leases import LeaseEventHandlers
from supervisor.scheduler.scheduled_model import (
    PendingCall,
    QueuedRequest,
    ScheduledModel,
    needs_new_engine,
    with_model,
)
from supervisor.scheduler.state import ModelTarget
from supervisor.scheduler.worker_lifecycle import WorkerState


class GatewayEventHandlers(LeaseEventHandlers):
    """Events of gateways and downloads."""

    def asked(self, key: RequestKey, ask: SubmitRequest, payload: bytes, target: ModelTarget, now: float) -> None:
        """A gateway wants a request run."""
        model = self.model(target)
        failure = self._refusal(model, ask, now)
        if failure:
            self.refuse(key, failure)
            return
        order = model.returning.pop((key.gateway, key.number), None) or next(self.order)
        waiting = QueuedRequest(key, ask, payload, order, now)
        if self.settled and self._granted_at_once(model, waiting, now):
            return
        self.settled = False
        model.enqueue(waiting)
        if model.spec is None:
            self.fetch(model)

    def _granted_at_once(self, model: ScheduledModel, waiting: QueuedRequest, now: float) -> bool:
        """Grant, if the model is ready with free slots; for a board where nobody waits."""
        process = model.process
        if process is None or process.state is not WorkerState.READY or process.facts is None or waiting.ask.suspect:
            return False
        slots = process.facts.slots
        weight = min(max(1, waiting.ask.weight), slots)
        if model.busy + weight > slots:
            return False
        closely = model.follows_closely(now)
        self.grant(model, process, waiting, weight, now)
        if closely and waiting.ask.model and waiting.ask.attempt == 1:
            self.lend(model, waiting.key, waiting.ask, now)
        return True

    def _refusal(self, model: ScheduledModel, ask: SubmitRequest, now: float) -> Failure | None:
        if self.closing:
            return Failure(Code.DRAINING, "The server is shutting down", retry_after=self.limits.grace)
        if model.process is None and self.spawn_problem is not None:
            failure = spare_workers.refusal_without_workers(self, now)
            if failure is not None:
                return with_model(model, failure)
        if model.backoff.pause(now) and not (model.process and model.process.serves):
            return model.backoff.refusal(model.name, now)
        if ask.attempt > 1 and not ask.new:
            return None
        if len(model.queue) >= self.limits.queue_requests:
            what = f"{len(model.queue)} requests"
        elif model.queue and model.queued_bytes + ask.size > self.limits.queue_bytes:
            what = f"{model.queued_bytes} bytes"
        else:
            return None
        return Failure(
            Code.OVERLOADED,
            f"The queue of model {model.name} is full ({what} wait)",
            model=model.name,
            retry_after=model.wait_s(),
        )

    def read(self, key: RequestKey, ask: SubmitRequest, payload: bytes, model: ScheduledModel) -> None:
        """A gateway wants to read an engine's state: no grant, no queue."""
        if model.process is None or not model.process.serves:
            self.refuse(key, Failure(Code.NOT_LOADED, f"Model {model.name} is not loaded", model=model.name))
            return
        self.run(model, model.process, QueuedRequest(key, ask, payload, 0, 0.0))

    def cancelled(self, key: RequestKey, reason: str) -> None:
        """Nobody wants this answer any more. Its grant ends with the worker's Idle, not now."""
        for model in self.models.values():
            lease = model.leases.get(key.gateway)
            if key in model.grants or (lease is not None and key in lease.running):
                if model.process:
                    self.emit(SendMessage(model.process.worker, Cancel(*key, reason)))
                return
            if model.dequeue(key):
                return

    def unwanted(self, worker: str, key: RequestKey) -> None:
        """An engine has been working for a while on what nobody wants any more."""
        process = self.workers.get(worker)
        model = process.model if process else None
        # What runs under a lease may not be known yet.
        if model is not None and (key in model.grants or key.gateway in model.leases):
            model.unwanted.add(key)
            self.settled = self.settled and not model.stuck

    def idle(self, key: RequestKey, code: str, now: float, seconds: float = 0.0) -> ScheduledModel | None:
        """The engine has stopped working on an attempt. Returns its place if the grant was known.

        ``seconds``: how long it ran, if the grant is younger than that.
        """
        for model in self.models.values():
            grant = model.grants.pop(key, None)
            if grant is None:
                continue
            model.unwanted.discard(key)
            self.settled = self.settled and not model.stuck
            model.ended(now)
            if not code:
                model.served(seconds or now - grant.began)
            elif code == Code.RETURNED:
                model.returning[key.gateway, key.number] = grant.order
                self._returned(key, model.name)
            return model
        if code == Code.RETURNED:
            # A read has no grant, and its gateway waits all the same.
            self._returned(key, "")
        return None

    def _returned(self, key: RequestKey, model: str) -> None:
        self.refuse(key, Failure(Code.RETURNED, "The worker never saw the gateway", model=model))

    def load_asked(self, peer: str, number: int, target: ModelTarget, now: float) -> None:
        """Somebody wants the model loaded with just these options (an explicit wish forgives a backoff)."""
        known = self._refused_before(target, now)
        if known is not None:
            self.refuse(RequestKey(peer, number, 0), known)
            return
        model = self.model(target, load=True)
        caller = PendingCall(peer, number, next(self.order), None if target.any else target.spec, target.options)
        if self.closing:
            self.refuse(RequestKey(peer, number, 0), Failure(Code.DRAINING, "The server is shutting down"))
            return
        if model.reload_spec is None and model.previous_spec is None:
            model.previous_pinned = model.pinned
        if target.pinned is not None:
            model.pinned = target.pinned
        if (
            target.spec is not None
            and model.spec is not None
            and model.process
            and needs_new_engine(target.spec, model.spec)
        ):
            model.reload_spec = target.spec
        model.backoff.ready()
        if self.spawn_backoff.pause(now):
            self.spawn_backoff.ready()
        if model.process and model.process.state is WorkerState.READY and not model.reload_spec:
            self.answer_loaded(model, [caller])
            model.last_use = now
            return
        model.loaders.append(caller)
        if model.spec is None:
            self.fetch(model)

    def _refused_before(self, target: ModelTarget, now: float) -> Failure | None:
        """Return why no good engine is ended for these options, if its successor would not start a moment ago."""
        model = self.models.get(target.name)
        known = model.refusal if model is not None and (model.process is not None or model.wanted) else None
        if known is None or target.spec is None or now >= known.until or needs_new_engine(target.spec, known.spec):
            return None
        return structs.replace(known.failure, retry_after=known.until - now)

    def unload_asked(self, peer: str, number: int, name: str) -> bool:
        """Somebody wants the model gone; return False if it is neither loaded nor on its way.

        Running requests end first, and those that wait for their turn have it loaded again.  A load that is under way,
        from its first moment on, ends here, and everybody who waits for it is told so.
        """
        model = self.models.get(name)
        if model is None or not model.unloadable:
            return False
        model.wanted = False
        model.refusal = None
        failure = Failure(Code.UNLOADED, f"Model {name} was unloaded while it was loading")
        if model.process is not None and model.process.serves:
            self.refuse_loads(model, failure)
        else:
            self.refuse_waiting(model, failure)
        # What was only being checked has no engine whose end anybody would have to wait for.
        self.release(model)
        if model.process is None:
            self.emit(AnswerCall(peer, number, [name]))
            if model.unused():
                self.forget_model(model)
            return True
        model.unloaders.append(PendingCall(peer, number, 0))
        if model.process.state in (WorkerState.LOADING, WorkerState.FAILED):
            self.stop_worker(model.process)
        return True

    def forget(self, peer: str, number: int) -> None:
        """A caller hung up: what it began goes on, but nobody waits for it."""
        for model in self.models.values():
            model.loaders = [c for c in model.loaders if (c.peer, c.number) != (peer, number)]
            model.unloaders = [c for c in model.unloaders if (c.peer, c.number) != (peer, number)]

    def requested_options(self, name: str) -> Mapping[str, OptionValue]:
        """Return the options for a model that was just downloaded: those of the last load that waits and names any."""
        model = self.models.get(name)
        return next((call.options for call in reversed(model.loaders if model else []) if call.options), {})

    def fetched(self, name: str, spec: ModelSpec | None, failure: Failure | None, now: float) -> None:
        """The download ended, one way or the other; one that failed is not begun anew by each request."""
        model = self.models.get(name)
        if model is None:
            return
        model.fetching = False
        known = model.backoff.failure
        if spec is not None:
            if known is not None and known.code is Code.DOWNLOAD_FAILED:
                model.backoff.ready()
            if model.process is None:
                model.spec = spec
        elif failure is not None:
            if failure.code is Code.DOWNLOAD_FAILED and not model.provisional:
                model.backoff.load_failed(failure, now)
                failure = structs.replace(failure, retry_after=max(failure.retry_after, model.backoff.pause(now)))
            self.refuse_waiting(model, failure)

    def peer_gone(self, gateway: str) -> None:
        """A gateway is gone: nothing of it waits, and what runs for it is stopped."""
        for model in self.models.values():
            for waiting in [waiting for waiting in model.queue if waiting.key.gateway == gateway]:
                model.dequeue(waiting.key)
            model.loaders = [caller for caller in model.loaders if caller.peer != gateway]
            model.unloaders = [caller for caller in model.unloaders if caller.peer != gateway]
            model.returning = {who: order for who, order in model.returning.items() if who[0] != gateway}
            for key in model.grants:
                if key.gateway == gateway and model.process:
                    self.emit(SendMessage(model.process.worker, Cancel(*key, Code.GATEWAY_GONE)))
            lease = model.leases.get(gateway)
            if lease is not None and model.process:
                lease.orphaned = lease.recalled = True
                self.emit(SendMessage(model.process.worker, RevokeLease(gateway, lease.number)))

    def close(self) -> None:
        """Take nothing new, refuse who waits; what runs goes on."""
        self.closing = True
        for model in list(self.models.values()):
            model.wanted = False
            self.refuse_waiting(
                model, Failure(Code.DRAINING, "The server is shutting down", retry_after=self.limits.grace)
            )
