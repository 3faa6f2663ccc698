"""One attempt at one request, from the grant to its end: reads the engine's answer, tells its owner."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.events import Outcome
from protocol.messages.work import Run
from protocol.wire.decoding import DECODE_ERRORS
from workers.backends.base import EngineRequest
from workers.engine.connection import EngineExchange
from workers.stream.response_assembler import ResponseAssembler
from workers.stream.sse_filter import ChoiceSummary, SseFilter, summaries_of
from workers.stream.token_timing import EngineSpan, TokenTiming

MAX_ERROR_BYTES: Final = 65_536
MAX_RESPONSE_BYTES: Final = 256 * 1024 * 1024
_PATH: Final = re.compile(r"(?<![\w/])/(?:[^\s/'\":,]+/)+[^\s'\":,]*")
_CALLER_MISTAKE: Final = re.compile(
    r"^(Failed to parse|Unknown reasoning format|Cannot use )|\[json\.exception\.|[Jj]inja"
)
"""What llama-server answers with 500 although it is the request that was wrong."""
_TOO_LONG: Final = re.compile(r"is too large to process|^Max length reached")
_TOKEN_COUNTS: Final = re.compile(r"\((\d+) tokens\)\D*(\d+)")
_ENGINE_INTERNALS: Final = re.compile(
    r"\[json\.exception\.[\w.]+\] ?"
    r"|^Unable to generate parser for this template\. Automatic parser generation failed: "
    r"|^Failed to initialize samplers: "
)
"""What llama-server says of its own working beside what is wrong with the request."""
_FIELD: Final = re.compile(r"^Field '([\w.]{1,80})': ")
_MAX_MESSAGE_LENGTH: Final = 500
"""Characters; an engine may repeat the whole request."""
_BUSY: Final = re.compile(r"NPU is in use")
"""The engine's queue is full although we send it one request at a time: another program uses this engine, too."""
BUSY_RETRY_AFTER_S: Final = 2.0
_ERROR_BODY: Final = re.compile(rb'\s*\{\s*"error"\s*:')

Clock = Callable[[], float]


class AttemptPhase(enum.Enum):
    """How far an attempt is."""

    WAITING = enum.auto()
    """For its gateway's subscription; the engine knows nothing of it."""
    RUNNING = enum.auto()
    STOPPING = enum.auto()
    """Nobody wants it any more, but the engine may still work on it."""


class AttemptOwner(Protocol):
    """Who is told what happens to an attempt."""

    def advanced(self, attempt: Attempt, data: bytes, tokens: int) -> None:
        """The engine said something; ``data`` (may be empty) is for the client."""

    def completed(self, attempt: Attempt, answer: bytes) -> None:
        """The generation really ended; ``answer`` is the whole body of one that is not streamed."""

    def failed(self, attempt: Attempt, failure: Failure, stopped: bool) -> None:
        """It ended otherwise; ``stopped``: the engine is known to have ended its work on it."""

    def broken(self, attempt: Attempt, failure: Failure) -> None:
        """The connection broke, and ``failure`` says so, unless the engine's death explains it."""

    def discarded(self, attempt: Attempt) -> None:
        """The answer of one that is stopping was read to its end."""


class Attempt:
    """One attempt. It is the :class:`~workers.engine.connection.ResponseHandler` of its exchange."""

    def __init__(self, run: Run, body: bytes, program: str, ours: str, owner: AttemptOwner, clock: Clock) -> None:
        """Wait; ``program`` and ``ours`` are the engine's name, and what it calls the model."""
        self.run = run
        self.key = RequestKey(run.gateway, run.number, run.attempt)
        self.body = body
        self.phase = AttemptPhase.WAITING
        self.code = ""
        """Why it is stopping."""
        self.tokens = 0
        self.request = EngineRequest("", "")
        self.exchange: EngineExchange | None = None
        self._program, self._ours, self._owner = program, ours, owner
        self._status = 0
        self._stream: SseFilter | None = None
        self._assembler: ResponseAssembler | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._begun = self._told = 0.0
        self._timing = TokenTiming(0.0)
        self._tails: list[ChoiceSummary] = []
        self._clock = clock

    def started(self, request: EngineRequest) -> None:
        """The request goes to the engine."""
        self.phase = AttemptPhase.RUNNING
        self.request = request
        self.body = b""
        self._begun = self._told = self._clock()
        self._timing = TokenTiming(self._begun)
        if request.streamed:
            whole = not self.run.stream
            self._stream = SseFilter(request.usage or whole, request.progress and not whole, self._ours, self.run.model)
            if whole:
                self._assembler = ResponseAssembler(chat=self.run.endpoint == "chat/completions")

    @property
    def answering(self) -> bool:
        """Whether the engine has taken the request up."""
        return self._status != 0

    def began(self, status: int) -> None:
        """See :class:`~workers.engine.connection.ResponseHandler`."""
        self._status = status
        self._owner.advanced(self, b"", 0)

    def data(self, piece: bytes) -> None:
        """See :class:`~workers.engine.connection.ResponseHandler`."""
        if self.phase is not AttemptPhase.RUNNING:
            return
        if self._status >= 400 or self._stream is None:
            self._size += len(piece)
            if self._size <= (MAX_ERROR_BYTES if self._status >= 400 else MAX_RESPONSE_BYTES):
                self._parts.append(piece)
            self._owner.advanced(self, b"", 0)
            return
        try:
            if self.request.translate is not None:
                piece = self.request.translate(piece)
            got = self._stream.feed(piece)
            if self._assembler is not None and got.data:
                self._assembler.feed(got.data)
        except (ValueError, *DECODE_ERRORS) as problem:
            self._owner.failed(self, self._error(f"{self._program} sent a broken stream", str(problem)), stopped=False)
            return
        if got.tokens:
            self._count(got.tokens)
        self._owner.advanced(self, b"" if self._assembler is not None else got.data, got.tokens)

    def silent_for(self, seconds: float) -> bool:
        """Return whether nothing was told for this long, and take it that something is told now."""
        now = self._clock()
        if now - self._told < seconds:
            return False
        self._told = now
        return True

    def _count(self, tokens: int) -> None:
        self.tokens += tokens
        if self._timing.came(tokens, self._clock()) and self.exchange is not None and not self.request.patient:
            self.exchange.settle()

    def ended(self) -> None:
        """See :class:`~workers.engine.connection.ResponseHandler`."""
        if self.phase is not AttemptPhase.RUNNING:
            self._owner.discarded(self)
        elif self._status >= 400:
            self._owner.failed(
                self, failure_of_response(self._status, b"".join(self._parts), self._program), stopped=True
            )
        elif self._size > MAX_RESPONSE_BYTES:
            self._owner.failed(self, self._error(f"{self._program} sent too large an answer"), stopped=True)
        elif self._stream is None:
            self._ended_whole(b"".join(self._parts))
        elif self._stream.error is not None:
            self._owner.failed(self, failure_of_response(500, self._stream.error, self._program), stopped=True)
        elif not self._stream.finished:
            said = failure_in_body(self._stream.rest, self._program)
            self._owner.failed(self, said or self._error(f"{self._program} ended its answer early"), stopped=True)
        else:
            self._owner.completed(self, b"" if self._assembler is None else self._assembler.answer())

    def broke(self, reason: str) -> None:
        """See :class:`~workers.engine.connection.ResponseHandler`."""
        if self.phase is not AttemptPhase.RUNNING:
            self._owner.discarded(self)
        else:
            self._owner.broken(self, self._error(f"the connection to {self._program} broke", reason))

    def _ended_whole(self, answer: bytes) -> None:
        said = failure_in_body(answer, self._program)
        if said is not None:
            self._owner.failed(self, said, stopped=True)
            return
        try:
            answer = self.request.translate(answer) if self.request.translate else answer
        except (ValueError, RecursionError) as problem:
            broken = self._error(f"{self._program} sent an answer that makes no sense", str(problem))
            self._owner.failed(self, broken, stopped=True)
            return
        self._owner.completed(self, self._as_stream(answer) if self.run.stream else self._whole(answer))

    def _as_stream(self, answer: bytes) -> bytes:
        """Return what a client may have of an answer that its engine gave whole, and its translation wrote as a stream."""
        self._stream = SseFilter(usage=False, progress=False)
        return self._stream.feed(answer).data

    def _whole(self, answer: bytes) -> bytes:
        self._tails = summaries_of([answer])
        old, new = msgspec.json.encode(self._ours), msgspec.json.encode(self.run.model)
        return answer.replace(b'"model":' + old, b'"model":' + new, 1)

    def _error(self, message: str, detail: str = "") -> Failure:
        return Failure(Code.BACKEND_ERROR, message, model=self.run.model, detail=detail, tokens_sent=self.tokens_sent)

    @property
    def tokens_sent(self) -> int:
        """Tokens that the client was sent."""
        return self.tokens if self.run.stream else 0

    def outcome(self, model: str) -> Outcome:
        """Return what the finished generation of ``model`` cost."""
        tails = self._stream.tails() if self._stream is not None else self._tails
        prompt = cached = output = 0
        engine: EngineSpan | None = None
        for tail in tails:
            if tail.usage is not None:
                prompt += tail.usage.prompt_tokens
                output += tail.usage.completion_tokens
            if tail.timings is not None:
                cached += tail.timings.cache_n
                its = EngineSpan(tail.timings.prompt_ms / 1000, tail.timings.predicted_ms / 1000)
                engine = (
                    its
                    if engine is None
                    else EngineSpan(max(engine.prompt, its.prompt), max(engine.decode, its.decode))
                )
        # Each choice reports its whole prompt; a prompt is paid for once, however many choices it has.
        choices = max(1, self.request.choices)
        output = output or self.tokens
        now = self._clock()
        # Whoever is patient was not woken for each token: only the engine knows when they came.
        times = self._timing.settled(output, now, engine, watched=not (self.request.patient and engine))
        return Outcome(
            model=model,
            prompt_tokens=prompt // choices,
            cached_tokens=cached // choices,
            output_tokens=output,
            first_token_s=times.first,
            decode_s=times.decode,
            total_s=now - self._begun,
            token_times=times.each,
        )


class _EngineError(msgspec.Struct):
    message: str = ""
    type: str = ""
    code: int = 0


class _EngineErrorBody(msgspec.Struct):
    error: _EngineError | str


_error_body = msgspec.json.Decoder(_EngineErrorBody).decode


def failure_in_body(answer: bytes, program: str) -> Failure | None:
    """Return the error in an answer with status 200, None if there is none: some engines put their errors there."""
    return failure_of_response(500, answer, program) if _ERROR_BODY.match(answer) else None


def failure_of_response(status: int, body: bytes, program: str) -> Failure:
    """Return the failure that an engine's error answer means. Its message loses what looks like a path."""
    try:
        said = _error_body(body).error
        error = _EngineError(said) if isinstance(said, str) else said
    except DECODE_ERRORS:
        error = _EngineError(message=f"{program} answered with status {status}")
    message = _PATH.sub("…", error.message) or f"{program} answered with status {status}"
    status = error.code if 400 <= error.code < 600 else status
    if error.type == "exceed_context_size_error" or _TOO_LONG.search(message):
        return Failure(Code.CONTEXT_EXCEEDED, _too_long(message), status=400)
    if _BUSY.match(message):
        return Failure(Code.OVERLOADED, f"{program}: {message}", retry_after=BUSY_RETRY_AFTER_S)
    if status == 501:
        return Failure(Code.UNSUPPORTED, message)
    if "input is not supported" in message:  # llama-server's 500 for a picture that the model has no eyes for
        return Failure(Code.INVALID_REQUEST, message.partition(" - hint")[0])
    if status >= 500 and _CALLER_MISTAKE.search(message):
        return _refused(Code.INVALID_REQUEST, message.partition("; tools = ")[0])
    if status >= 500:
        return Failure(Code.BACKEND_ERROR, f"{program}: {message}")
    code = {401: Code.UNAUTHORIZED, 404: Code.NOT_FOUND, 413: Code.TOO_LARGE}.get(status, Code.INVALID_REQUEST)
    return _refused(code, message, status)


def _too_long(message: str) -> str:
    counts = _TOKEN_COUNTS.search(message)
    if counts is None:
        return "the input is longer than the model's context: shorten it, or load the model with a larger ctx_size"
    tokens, context = counts.groups()
    return (
        f"the input has {tokens} tokens, more than the model's context of {context}: "
        "shorten it, or load the model with a larger ctx_size"
    )


def _refused(code: Code, message: str, status: int = 0) -> Failure:
    """Return the failure for a request that the engine refused; its message says nothing of how the engine works."""
    message = _ENGINE_INTERNALS.sub("", message)
    field = _FIELD.match(message)
    param = field.group(1) if field else ""
    if field:
        message = f"`{param}`: {message[field.end() :]}"
    if len(message) > _MAX_MESSAGE_LENGTH:
        message = message[:_MAX_MESSAGE_LENGTH] + "…"
    return Failure(code, message, param=param, status=status, quotes=True)
