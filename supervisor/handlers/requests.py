"""Messages about inference requests: their submission, end and cancellation."""

from __future__ import annotations

from functools import partial

from msgspec import structs

from protocol.failures import SERVER_DRAINED, Code, LemonbusError
from protocol.ids import RequestKey
from protocol.messages.events import total_outcome
from protocol.messages.health import StatsReport
from protocol.messages.work import (
    ENGINE_STATE_ENDPOINTS,
    AnswerLost,
    AnswersReceived,
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
from supervisor.persistence.server_record import ServerRecord
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.internal_calls import InternalCalls
from supervisor.scheduler.inputs import ModelTarget
from supervisor.scheduler.scheduler import Scheduler
from supervisor.usage.accounting import Accounting


class InferenceRequests:
    """Takes these messages. ``targets`` finds the models, and ``admission`` says what may be submitted."""

    def __init__(
        self,
        loop: Loop,
        models: ModelRegistry,
        targets: ModelTargets,
        scheduler: Scheduler,
        internal_calls: InternalCalls,
        admission: KeyAdmission,
        accounting: Accounting,
        metrics: ServerMetrics,
        stats: LatestStats,
        calls: GatewayCalls,
        record: ServerRecord,
    ) -> None:
        self._loop, self._models, self._targets = loop, models, targets
        self._scheduler, self._internal_calls, self._admission = scheduler, internal_calls, admission
        self._accounting = accounting
        self._metrics, self._stats, self._calls = metrics, stats, calls
        self._record = record

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
            AnswersReceived: self._answers_received,
            Cancel: self._cancel,
        }

    def _submit(self, peer: str, message: SubmitRequest, payload: bytes) -> None:
        """Submit a gateway's request to the scheduler."""
        key = RequestKey(peer, message.number, message.attempt)
        if message.after:
            self._scheduler.expect_no_piece_after(peer, message.after)
        if message.retry_reason:
            self._metrics.attempt_retried(message.retry_reason)
            self._accounting.take_back(key._replace(attempt=message.attempt - 1))
        elif message.caller is not None and not (message.reservation or message.batch) and message.earlier is None:
            self._metrics.request_submitted(message.caller.key)
        try:
            if message.endpoint in ENGINE_STATE_ENDPOINTS:
                self._scheduler.state_read(key, message, payload, self._targets.loaded(message))
            else:
                if self._record.drained and not _accepted_before(message):
                    raise SERVER_DRAINED.raised()
                target = self._targets.of_request(message)
                if message.batch:
                    self._admit_of_batch(message, target)
                if not message.model and (entry := self._models.known(target.name)):
                    message = structs.replace(message, model=entry.short_name)  # its answer says which model it is from
                run = partial(self._submit_to_scheduler, key, message, payload, target)
                reservation = RequestKey(peer, message.reservation, 0) if message.reservation else None
                known = message.age is not None and self._scheduler.view.knows_attempt(key)
                admitted = message.admitted or message.earlier is not None or known
                self._admission.admit(key, message.caller, run, reservation, admitted=admitted)
        except LemonbusError as problem:
            self._scheduler.refuse(key, problem.failure)

    def _admit_of_batch(self, message: SubmitRequest, target: ModelTarget) -> None:
        """Raise ``batch_waits`` if a line of a batch cannot run now. It comes again, so it has not counted for its key."""
        if not _accepted_before(message):
            if held := self._scheduler.batch_refusal(message, target.name):
                raise held.raised()
            if message.caller is not None:
                self._metrics.request_submitted(message.caller.key)

    def _reserve(self, peer: str, message: ReserveRequest, _payload: bytes) -> None:
        """If a coming request would be refused, refuse it now; else count it against the limits of its key."""
        if message.caller is not None:
            self._metrics.request_submitted(message.caller.key)
        call = RequestKey(peer, message.number, 0)
        try:
            if self._record.drained:
                raise SERVER_DRAINED.raised()
            self._targets.of_request(message)
            accepted = partial(self._calls.answer, peer, message.number, None)
            self._admission.reserve(call, message.caller, accepted)
        except LemonbusError as problem:
            self._scheduler.refuse(call, problem.failure)

    def _submit_to_scheduler(
        self, key: RequestKey, message: SubmitRequest, payload: bytes, target: ModelTarget
    ) -> None:
        if message.context:
            target = enlarge_context(self._scheduler.view, self._internal_calls, target, message.context)
        self._scheduler.request_submitted(key, message, payload, target, self._loop.now())

    def _ended(self, peer: str, message: AttemptEnded, _payload: bytes) -> None:
        """Free the slots of an attempt that its engine no longer works on."""
        key, outcome = message.key, message.outcome
        output_tokens = outcome.output_tokens if outcome else message.tokens
        tokens = output_tokens + (outcome.prompt_tokens if outcome else message.prompt_tokens)
        now = self._loop.now()
        ended = self._scheduler.attempt_ended(
            key, message.code, now, tokens=tokens, output_tokens=output_tokens, ended_at=now - message.age
        )
        self._accounting.attempt_ended(peer, message)
        if message.code == Code.GATEWAY_GONE:
            self._calls.attempt_cut_off(key, peer)
        if ended is not None and outcome is not None:
            whole = total_outcome([ended.earlier, outcome]) if ended.earlier else outcome
            self._stats.add(StatsReport(ended.model, whole))
            self._scheduler.count("tokens_generated", output_tokens)

    def _several_ended(self, peer: str, message: AttemptsEnded, payload: bytes) -> None:
        """Free the slots of several attempts."""
        for end in message.ends:
            self._ended(peer, end, payload)

    def _progressed(self, peer: str, message: AttemptProgress, _payload: bytes) -> None:
        """Note how far an engine is with an attempt."""
        self._scheduler.attempt_progressed(peer, message)

    def _abandoned(self, peer: str, message: AttemptAbandoned, _payload: bytes) -> None:
        """Note that an engine still works on an attempt after its client has gone."""
        self._scheduler.attempt_abandoned(peer, RequestKey(message.gateway, message.number, message.attempt))

    def _answer_lost(self, peer: str, message: AnswerLost, _payload: bytes) -> None:
        """Count what was sent of a stream whose worker is gone."""
        self._accounting.answer_lost(peer, message)

    def _answers_received(self, _peer: str, message: AnswersReceived, _payload: bytes) -> None:
        """Count the answers whose ends their worker could not report before its own."""
        for end in message.ends:
            self._accounting.attempt_ended(message.worker, end)

    def _cancel(self, peer: str, message: Cancel, _payload: bytes) -> None:
        """Cancel an attempt whose client has gone."""
        key = RequestKey(peer, message.number, message.attempt)
        self._admission.cancelled(key)
        self._scheduler.request_cancelled(key, message.reason)


def _accepted_before(message: SubmitRequest) -> bool:
    """Return whether a request, its first attempt, its first piece or its reservation was accepted earlier."""
    return message.attempt > 1 or message.age is not None or message.earlier is not None or message.reservation != 0
