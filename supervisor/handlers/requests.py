"""Messages about inference requests: their submission, end and cancellation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from msgspec import structs

from protocol.failures import LemonbusError
from protocol.ids import RequestKey
from protocol.messages.events import total_outcome
from protocol.messages.health import StatsReport
from protocol.messages.work import (
    ENGINE_STATE_ENDPOINTS,
    AnswerLost,
    AttemptAbandoned,
    AttemptEnded,
    AttemptProgress,
    AttemptsEnded,
    Cancel,
    ReserveRequest,
    SubmitRequest,
)
from protocol.runtime.loop import Loop
from supervisor.handlers.context_size import enlarge_context
from supervisor.handlers.model_targets import ModelTargets
from supervisor.limits.key_admission import KeyAdmission
from supervisor.metrics.latest_stats import LatestStats
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.models.registry import ModelRegistry
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.internal_calls import InternalCalls
from supervisor.scheduler.inputs import ModelTarget
from supervisor.scheduler.scheduler import Scheduler


@dataclass(frozen=True)
class InferenceRequests:
    """Takes these messages. ``targets`` finds the models, and ``admission`` says what may be submitted."""

    loop: Loop
    models: ModelRegistry
    targets: ModelTargets
    scheduler: Scheduler
    internal_calls: InternalCalls
    admission: KeyAdmission
    metrics: ServerMetrics
    stats: LatestStats
    calls: GatewayCalls

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {
            SubmitRequest: self._submit,
            ReserveRequest: self._reserve,
            AttemptEnded: self._ended,
            AttemptsEnded: self._several_ended,
            AttemptAbandoned: self._abandoned,
            AttemptProgress: self._progressed,
            AnswerLost: self._answer_lost,
            Cancel: self._cancel,
        }

    def _submit(self, peer: str, message: SubmitRequest, payload: bytes) -> None:
        """Submit a gateway's request to the scheduler."""
        key = RequestKey(peer, message.number, message.attempt)
        if message.retry_reason:
            self.metrics.attempt_retried(message.retry_reason)
        elif message.caller is not None and not message.reservation and message.earlier is None:
            self.metrics.request_submitted(message.caller.key)
        try:
            if message.endpoint in ENGINE_STATE_ENDPOINTS:
                self.scheduler.state_read(key, message, payload, self.targets.loaded(message))
            else:
                target = self.targets.of_request(message)
                if not message.model and (entry := self.models.known(target.name)):
                    message = structs.replace(message, model=entry.short_name)  # its answer says which model it is from
                run = partial(self._submit_to_scheduler, key, message, payload, target)
                reservation = RequestKey(peer, message.reservation, 0) if message.reservation else None
                known = message.age is not None and self.scheduler.view.knows_attempt(key)
                admitted = message.admitted or message.earlier is not None or known
                self.admission.admit(key, message.caller, run, reservation, admitted=admitted)
        except LemonbusError as problem:
            self.scheduler.refuse(key, problem.failure)

    def _reserve(self, peer: str, message: ReserveRequest, _payload: bytes) -> None:
        """If a coming request would be refused, refuse it now; else count it against the limits of its key."""
        if message.caller is not None:
            self.metrics.request_submitted(message.caller.key)
        call = RequestKey(peer, message.number, 0)
        try:
            self.targets.of_request(message)
            accepted = partial(self.calls.answer, peer, message.number, None)
            self.admission.reserve(call, message.caller, accepted)
        except LemonbusError as problem:
            self.scheduler.refuse(call, problem.failure)

    def _submit_to_scheduler(
        self, key: RequestKey, message: SubmitRequest, payload: bytes, target: ModelTarget
    ) -> None:
        if message.context:
            target = enlarge_context(self.scheduler.view, self.internal_calls, target, message.context)
        self.scheduler.request_submitted(key, message, payload, target, self.loop.now())

    def _ended(self, _peer: str, message: AttemptEnded, _payload: bytes) -> None:
        """Free the slots of an attempt that its engine no longer works on."""
        key = RequestKey(message.gateway, message.number, message.attempt)
        outcome = message.outcome
        output_tokens = outcome.output_tokens if outcome else message.tokens
        tokens = output_tokens + (outcome.prompt_tokens if outcome else message.prompt_tokens)
        now = self.loop.now()
        ended = self.scheduler.attempt_ended(key, message.code, now, tokens, output_tokens, now - message.age)
        if ended is None:
            return
        model = ended.model
        self.admission.ended(ended.caller, tokens)
        if outcome is None:
            self.metrics.generation_stopped(model, message.tokens)
        else:
            self.metrics.generation_ended(model, outcome)
            whole = total_outcome([ended.earlier, outcome]) if ended.earlier else outcome
            self.stats.add(StatsReport(model, whole))
            self.scheduler.count("tokens_generated", output_tokens)

    def _several_ended(self, peer: str, message: AttemptsEnded, payload: bytes) -> None:
        """Free the slots of several attempts."""
        for end in message.ends:
            self._ended(peer, end, payload)

    def _progressed(self, peer: str, message: AttemptProgress, _payload: bytes) -> None:
        """Note how far an engine is with an attempt."""
        self.scheduler.attempt_progressed(peer, message)

    def _abandoned(self, peer: str, message: AttemptAbandoned, _payload: bytes) -> None:
        """Note that an engine still works on an attempt after its client has gone."""
        self.scheduler.attempt_abandoned(peer, RequestKey(message.gateway, message.number, message.attempt))

    def _answer_lost(self, _peer: str, message: AnswerLost, _payload: bytes) -> None:
        """Count what was sent of a stream whose worker is gone."""
        self.metrics.generation_stopped(message.model, message.tokens)
        self.admission.ended(message.caller, message.tokens)

    def _cancel(self, peer: str, message: Cancel, _payload: bytes) -> None:
        """Cancel an attempt whose client has gone."""
        key = RequestKey(peer, message.number, message.attempt)
        self.admission.cancelled(key)
        self.scheduler.request_cancelled(key, message.reason)
