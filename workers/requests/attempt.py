"""One attempt at one request, from the grant to its end: reads the engine's response and reports to its owner.

Invariants:

* The phase only changes along the table in ``attempt_phase.py``. An ended attempt reports nothing.
* While it is RUNNING, exactly one of ``completed``, ``failed``, ``broken`` or ``crashed`` is reported. Once it is
  STOPPING, only ``advanced`` and ``discarded`` are.
* ``completed`` means that the engine ended its response as its format demands, not just that the connection closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from protocol.failures import RETRIABLE, Code, Failure
from protocol.ids import RequestKey
from protocol.messages.events import Outcome
from protocol.messages.work import Run
from protocol.models.text_limits import estimated_prompt_tokens
from protocol.wire.decoding import DECODE_ERRORS
from workers.backends.engine_request import EngineRequest
from workers.engine.error_responses import ErrorSource, failure_in_body, failure_of_response
from workers.engine.exchange import EngineExchange
from workers.requests.attempt_phase import AttemptPhase
from workers.stream.answer_forms import check_answer
from workers.stream.native_completion import NativeCompletionAssembler, NativeCompletionFilter, native_summaries
from workers.stream.response_assembler import ResponseAssembler
from workers.stream.sse_filter import ChoiceSummary, SseFilter, renames, summaries_of
from workers.stream.token_timing import EngineSpan, TokenTiming
from workers.stream.transcript_events import TranscriptFilter
from workers.stream.usage import with_usage_of_all

MAX_ERROR_BYTES: Final = 65_536
MAX_RESPONSE_BYTES: Final = 256 * 1024 * 1024

_AUDIO: Final = "audio/"
_WITHOUT_PROMPT: Final = (_AUDIO, "images/")
"""Prefixes of endpoints whose engines do not count tokens."""
_NO_REQUEST: Final = EngineRequest("", "")

Clock = Callable[[], float]


class AnswerFacts(ErrorSource, Protocol):
    """What is to be known of an engine to read its answers; see :class:`~workers.backends.base.Backend`."""

    reported_build: str
    build: str

    @property
    def alias(self) -> str:
        """What it calls the model."""


class AttemptOwner(Protocol):
    """Is told what happens to an attempt."""

    def advanced(self, attempt: Attempt, data: bytes, tokens: int) -> None:
        """The engine sent something; ``data`` (may be empty) is for the client."""

    def completed(self, attempt: Attempt, body: bytes) -> None:
        """The generation really ended. ``body`` is the whole response body of a request that is not streamed."""

    def failed(self, attempt: Attempt, failure: Failure, stopped: bool) -> None:
        """It ended otherwise. ``stopped``: the engine is known to have stopped working on it."""

    def broken(self, attempt: Attempt, failure: Failure) -> None:
        """The connection broke, as ``failure`` says. The engine's death may turn out to be the reason."""

    def crashed(self, attempt: Attempt, error: BaseException) -> None:
        """Our own code raised while it handled the response."""

    def discarded(self, attempt: Attempt) -> None:
        """The response of a stopping attempt has ended, in whatever way."""


class Attempt:
    """One attempt. It is the :class:`~workers.engine.response_handler.ResponseHandler` of its exchange."""

    def __init__(self, run: Run, body: bytes, backend: AnswerFacts, owner: AttemptOwner, clock: Clock) -> None:
        """Wait; ``backend`` is the engine's."""
        self.run = run
        self.key = RequestKey(run.gateway, run.number, run.attempt)
        self.body = body
        self.phase = AttemptPhase.WAITING
        self.stop_code = ""
        """Why it is stopping."""
        self.abandoned = False
        """Whether the supervisor was told that the engine still works on it although no client waits."""
        self.tokens = 0
        self.request = _NO_REQUEST
        self.exchange: EngineExchange | None = None
        self._backend, self._owner = backend, owner
        self._status = 0
        self._stream: SseFilter | None = None
        self._assembler: ResponseAssembler | NativeCompletionAssembler | None = None
        self._body_parts: list[bytes] = []
        self._body_size = 0
        self._began_at = self._reported_at = 0.0
        self._timing = TokenTiming(0.0)
        self._summaries: list[ChoiceSummary] = []
        self._clock = clock
        self.arrived_at = clock()
        """When its `Run` came."""

    def enter(self, phase: AttemptPhase) -> None:
        """Change the phase; raises ValueError for a change that the table does not have."""
        self.phase = self.phase.changed_to(phase)

    def start(self, request: EngineRequest) -> None:
        """Begin to run: ``request`` goes to the engine."""
        self.enter(AttemptPhase.RUNNING)
        self.request = request
        self.body = b""
        self._began_at = self._reported_at = self._clock()
        self._timing = TokenTiming(self._began_at)
        if request.streamed:
            whole = not self.run.stream
            progress = request.progress and not whole
            if self.run.endpoint.startswith(_AUDIO):
                self._stream = TranscriptFilter()
            elif request.native:
                self._stream = NativeCompletionFilter(progress, self._backend.alias, self.run.model, request.weight)
            else:
                usage = request.usage or whole
                alias, builds = self._backend.alias, (self._backend.reported_build, self._backend.build)
                self._stream = SseFilter(
                    usage, progress, alias, self.run.model, request.prompts, request.choices, builds
                )
            if whole:
                chat = self.run.endpoint == "chat/completions"
                self._assembler = (
                    NativeCompletionAssembler(request.tokens) if request.native else ResponseAssembler(chat)
                )

    @property
    def _succeeded(self) -> bool:
        return 200 <= self._status < 300

    @property
    def response_began(self) -> bool:
        """Whether the engine has begun to work on the request."""
        return self._status != 0

    @property
    def tokens_sent(self) -> int:
        """Tokens that were sent to the client."""
        return self.tokens if self.run.stream else 0

    def prompt_tokens(self, code: str, *, by_request: bool = False) -> int:
        """For an attempt that ends with ``code`` and without an outcome, return the tokens of its prompt.

        Their number is what the engine has reported, else an estimate. It is 0 if the engine has not got the request or
        has refused it, and if the request is tried again. ``by_request``: see :class:`~protocol.failures.Failure`.
        """
        again = code in RETRIABLE and not self.tokens_sent and not by_request
        without = not self.request.weight or self.run.endpoint.startswith(_WITHOUT_PROMPT)
        if again or without or self._status >= 400:
            return 0
        reported = self._stream.prompt_tokens if self._stream is not None and self.request.prompts == 1 else 0
        return reported or estimated_prompt_tokens(self.request.body)

    def keepalive_due(self, interval: float) -> bool:
        """Return whether nothing was reported for ``interval`` seconds. If so, the next interval begins now."""
        now = self._clock()
        if now - self._reported_at < interval:
            return False
        self._reported_at = now
        return True

    # What the connection reports; see :class:`~workers.engine.response_handler.ResponseHandler`.

    def began(self, status: int) -> None:
        """Take the status."""
        self._status = status
        self._owner.advanced(self, b"", 0)

    def data(self, piece: bytes) -> None:
        """Take a part of the body."""
        if self.phase is not AttemptPhase.RUNNING:
            return
        if self._stream is None or not self._succeeded:
            self._body_size += len(piece)
            self._body_parts.append(piece)
            if self._body_size > (MAX_RESPONSE_BYTES if self._succeeded else MAX_ERROR_BYTES):
                self._fail(self._error(f"{self._backend.program} sent too large a response"), stopped=False)
            return
        try:
            if self.request.translate is not None:
                piece = self.request.translate(piece)
            filtered = self._stream.feed(piece)
            if self._assembler is not None and filtered.data:
                self._body_size += len(filtered.data)
                self._assembler.feed(filtered.data)
        except (ValueError, *DECODE_ERRORS) as problem:
            self._fail(self._error(f"{self._backend.program} sent a broken stream", str(problem)), stopped=False)
            return
        if self._body_size > MAX_RESPONSE_BYTES:
            self._fail(self._error(f"{self._backend.program} sent too large a response"), stopped=False)
            return
        if filtered.tokens:
            self._count(filtered.tokens)
        elif not filtered.data and not filtered.alive:
            return  # a part of an event is not progress: the event may never end
        self._owner.advanced(self, b"" if self._assembler is not None else filtered.data, filtered.tokens)

    def ended(self, until_close: bool = False) -> None:
        """Judge whether the response is complete."""
        if self.phase is not AttemptPhase.RUNNING:
            self._owner.discarded(self)
        elif not self._succeeded:
            status = self._status if self._status >= 400 else 500
            self._fail(failure_of_response(status, b"".join(self._body_parts), self._backend))
        elif self._stream is None:
            self._ended_whole(b"".join(self._body_parts), until_close)
        elif self._stream.error is not None:
            self._fail(failure_of_response(500, self._stream.error, self._backend))
        elif not self._stream.finished:
            reported = failure_in_body(self._stream.rest, self._backend)
            self._fail(reported or self._ended_early())
        else:
            self._owner.completed(self, b"" if self._assembler is None else self._assembler.answer())

    def broke(self, reason: str) -> None:
        """Report a connection that ended too early."""
        if self.phase is not AttemptPhase.RUNNING:
            self._owner.discarded(self)
        else:
            message = f"the connection to {self._backend.program} broke"
            self._owner.broken(self, self._error(message, reason, Code.CONNECTION_LOST))

    def malformed(self, reason: str) -> None:
        """Report an engine that does not speak HTTP."""
        if self.phase is not AttemptPhase.RUNNING:
            self._owner.discarded(self)
        else:
            self._fail(self._error(f"{self._backend.program} sent something that is not HTTP", reason), stopped=False)

    def crashed(self, error: BaseException) -> None:
        """Report a programming error of ours."""
        self._owner.crashed(self, error)

    def _fail(self, failure: Failure, stopped: bool = True) -> None:
        self._owner.failed(self, failure, stopped)

    def _ended_whole(self, body: bytes, until_close: bool) -> None:
        reported = failure_in_body(body, self._backend)
        if reported is None and until_close and not _is_json(body):
            reported = self._ended_early()
        if reported is not None:
            self._fail(reported)
            return
        try:
            body = self.request.translate(body) if self.request.translate else body
            if not self.run.stream:
                check_answer(self.run.endpoint, body)
        except (ValueError, RecursionError) as problem:
            self._fail(self._error(f"{self._backend.program} sent a response that makes no sense", str(problem)))
            return
        self._owner.completed(self, self._as_stream(body) if self.run.stream else self._finished_body(body))

    def _as_stream(self, body: bytes) -> bytes:
        """Return the events for the client of a whole response that was translated into a stream."""
        self._stream = TranscriptFilter()
        return self._stream.feed(body).data

    def _finished_body(self, body: bytes) -> bytes:
        """Note the usage, and write the name that the client used for the model, and the engine's build."""
        if self.request.choices > 1 and not self.request.native:
            body = with_usage_of_all(body)
        self._summaries = native_summaries(body) if self.request.native else summaries_of([body])
        backend, once = self._backend, -1 if self.request.native else 1
        for old, new in renames(backend.alias, self.run.model, (backend.reported_build, backend.build)):
            body = body.replace(old, new, once)
        return body

    def _count(self, tokens: int) -> None:
        self.tokens += tokens
        first = self._timing.add(tokens, self._clock())
        if first and self.exchange is not None and not self.request.patient:
            self.exchange.allow_batched_reads()

    def _ended_early(self) -> Failure:
        return self._error(f"{self._backend.program} ended its response early")

    def _error(self, message: str, detail: str = "", code: Code = Code.BACKEND_ERROR) -> Failure:
        return Failure(code, message, model=self.run.model, detail=detail, tokens_sent=self.tokens_sent)

    def outcome(self, model: str) -> Outcome:
        """Return the cost of the finished generation of ``model``."""
        summaries = self._stream.summaries() if self._stream is not None else self._summaries
        prompt = cached = output = 0
        engine: EngineSpan | None = None
        for summary in summaries:
            if summary.usage is not None:
                prompt += summary.usage.prompt_tokens
                output += summary.usage.completion_tokens
            if summary.timings is not None:
                cached += summary.timings.cache_n
                span = EngineSpan(summary.timings.prompt_ms / 1000, summary.timings.predicted_ms / 1000)
                if engine is not None:
                    span = engine.followed_by(span) if self.request.in_turn else engine.merged_with(span)
                engine = span
        # Each choice reports its whole prompt, but a prompt is computed once, however many choices it has.
        choices = max(1, self.request.choices) if len(summaries) > 1 else 1
        output = output or self.tokens
        now = self._clock()
        # A patient connection was not read for each token, so only the engine knows when its tokens came.
        watched = not (self.request.patient and engine)
        marks = self._assembler.marks if isinstance(self._assembler, ResponseAssembler) else []
        times = self._timing.finish(output, now, engine, watched, marks)
        return Outcome(
            model=model,
            prompt_tokens=prompt // choices,
            cached_tokens=cached // choices,
            output_tokens=output,
            first_token_s=times.first,
            decode_s=times.decode,
            total_s=now - self._began_at,
            token_times=times.each,
            queue_s=self.run.waited,
        )


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except DECODE_ERRORS:
        return False
    return True
