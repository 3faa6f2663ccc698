"""The engine's answer to one request: read whole or as a stream, and put into the form that its client gets.

Invariant: an answer is complete only if the engine ended it as its format demands, not just because the connection closed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from protocol.failures import DECODE_ERRORS, RETRIABLE, Code, Failure
from protocol.messages.events import Outcome
from protocol.messages.work import BYTE_STREAMS, Run
from protocol.requests.text_limits import estimated_prompt_tokens
from workers.backends.engine_request import EngineRequest
from workers.engine.connections.exchange import encoding_of, seconds_to_wait
from workers.engine.error_responses import ErrorSource, failure_in_body, failure_of_response
from workers.stream.answer_forms import check_answer, is_json
from workers.stream.byte_stream import ByteStream
from workers.stream.choice_totals import totals_of
from workers.stream.native_completion import NativeCompletionAssembler, NativeCompletionFilter, native_summaries
from workers.stream.response_assembler import ResponseAssembler
from workers.stream.sse_filter import ChoiceSummary, FilteredEvents, SseFilter, dated, renames, summaries_of
from workers.stream.sse_parser import EVENT_END
from workers.stream.token_timing import TokenTiming
from workers.stream.transcript_events import TranscriptFilter
from workers.stream.usage import estimated_answer_tokens, with_usage_of_all

MAX_ERROR_BYTES: Final = 65_536
MAX_RESPONSE_BYTES: Final = 256 * 1024 * 1024

_AUDIO: Final = "audio/"
_WITHOUT_PROMPT: Final = (_AUDIO, "images/")
"""Prefixes of endpoints whose engines do not count tokens."""
_COUNTED: Final = frozenset({"chat/completions", "completions", "embeddings", "rerank"})
"""Endpoints whose answers have token counts. A server of any make may leave them out."""
_NO_REQUEST: Final = EngineRequest("", "")
_LAST_EVENT: Final = EVENT_END + b"data: [DONE]" + EVENT_END
"""Ends a stream that its server has ended without a marker, and an event that has arrived without its last line."""
_NOTHING: Final = FilteredEvents(b"", 0, alive=False)

Clock = Callable[[], float]


class AnswerFacts(ErrorSource, Protocol):
    """What is to be known of an engine to read its answers; see :class:`~workers.backends.base.Backend`."""

    reported_build: str
    build: str
    clock_shift: int

    def refusal(self, endpoint: str, status: int, body: bytes, /) -> Failure | None:
        """Return the failure for an error response that means something else than with other engines; else None."""

    @property
    def alias(self) -> str:
        """What it calls the model."""


class EngineAnswer:
    """One answer. Its methods raise the failure that it turns out to be."""

    def __init__(self, run: Run, backend: AnswerFacts, clock: Clock) -> None:
        """Expect nothing yet; ``backend`` is the engine's."""
        self.request = _NO_REQUEST
        self.tokens = 0
        self.status = 0
        """0 until the engine has begun to answer."""
        self._headers: Mapping[bytes, bytes] = {}
        self._run, self._backend, self._clock = run, backend, clock
        self._stream: SseFilter | None = None
        self._bytes = ByteStream() if run.endpoint in BYTE_STREAMS else None
        self._assembler: ResponseAssembler | NativeCompletionAssembler | None = None
        self._body_parts: list[bytes] = []
        self._body_size = 0
        self.began_at = 0.0
        """When the request was sent, first of all to any server; 0: it was not."""
        self.timing = TokenTiming(0.0)
        self._summaries: list[ChoiceSummary] = []
        self._whole = b""
        """A whole answer without token counts."""

    def expect(self, request: EngineRequest, began_at: float | None = None) -> None:
        """Expect the answer to ``request``, which was sent at ``began_at``; None: it is sent now."""
        self.request = request
        self.began_at = self._clock() if began_at is None else began_at
        self.timing = TokenTiming(self.began_at)
        if request.streamed and self._bytes is None:
            whole = not self._run.stream
            progress = request.progress and not whole
            backend, model = self._backend, self._run.model
            if self._run.endpoint.startswith(_AUDIO):
                self._stream = TranscriptFilter()
            elif request.native:
                self._stream = NativeCompletionFilter(progress, backend.alias, model, request.weight)
            else:
                usage, builds = request.usage or whole, (backend.reported_build, backend.build)
                self._stream = SseFilter(
                    usage, progress, backend.alias, model, request.prompts, request.choices, builds, backend.clock_shift
                )
            if whole:
                chat, tokens = self._run.endpoint == "chat/completions", request.tokens
                self._assembler = NativeCompletionAssembler(tokens) if request.native else ResponseAssembler(chat)

    def began(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        """Take the status, and the headers of ``NOTED_HEADERS``."""
        self.status = status
        self._headers = headers
        if self._bytes is not None:
            self._bytes.begin(headers.get(b"content-type", b""))

    @property
    def _succeeded(self) -> bool:
        return 200 <= self.status < 300

    @property
    def seconds(self) -> float:
        """How long ago the engine got the request; 0 if it has not."""
        return self._clock() - self.began_at if self.began_at else 0.0

    @property
    def tokens_sent(self) -> int:
        """Tokens that were sent to the client."""
        return self.tokens if self._run.stream else 0

    def prompt_tokens(self, code: str, *, by_request: bool = False) -> int:
        """For an attempt that ends with ``code`` and without an outcome, return the tokens of its prompt.

        Their number is what the engine has reported, else an estimate. It is 0 if the engine has not got the request or
        has refused it, and if the request is tried again. ``by_request``: see :class:`~protocol.failures.Failure`.
        """
        again = code in RETRIABLE and not self.tokens_sent and not by_request
        without = not self.request.weight or self._run.endpoint.startswith(_WITHOUT_PROMPT)
        if again or without or self.status >= 400:
            return 0
        reported = self._stream.prompt_tokens if self._stream is not None and self.request.prompts == 1 else 0
        return reported or estimated_prompt_tokens(self.request.body)

    def feed(self, piece: bytes) -> FilteredEvents:
        """Take a part of the body; return what it has for the client, and the tokens in it."""
        if encoding := encoding_of(self._headers):
            what = f"{self._backend.program} sent a compressed answer (status {self.status}), which was not asked for"
            raise self.failure(what, encoding).raised()
        if self._bytes is not None and self._succeeded:
            return self._bytes.feed(piece)
        if self._stream is None or not self._succeeded:
            self._body_size += len(piece)
            self._body_parts.append(piece)
            self._check_size(MAX_RESPONSE_BYTES if self._succeeded else MAX_ERROR_BYTES)
            return _NOTHING
        try:
            if self.request.translate is not None:
                piece = self.request.translate(piece)
            filtered = self._stream.feed(piece)
            if self._assembler is not None and filtered.data:
                self._body_size += len(filtered.data)
                self._assembler.feed(filtered.data)
                filtered = filtered._replace(data=b"", alive=True)
        except (ValueError, *DECODE_ERRORS) as problem:
            raise self.failure(f"{self._backend.program} sent a broken stream", str(problem)).raised() from problem
        self._check_size(MAX_RESPONSE_BYTES)
        return filtered

    def _check_size(self, most: int) -> None:
        if self._body_size <= most:
            return
        if self.status >= 400:
            # An engine may repeat a large part of the request that it refuses. Its message is the first field.
            beginning = b"".join(self._body_parts)[:most].rstrip(b"\\")
            failure = failure_of_response(self.status, beginning + b'"}}', self._backend)
            if failure.code != Code.BACKEND_ERROR:
                raise failure.raised()
        raise self.failure(f"{self._backend.program} sent too large a response").raised()

    def note_trailer(self, name: bytes, value: bytes) -> None:
        """Take a header that follows the body."""
        if self._bytes is not None:
            self._bytes.note_trailer(name, value)

    def count(self, tokens: int) -> bool:
        """Count tokens that have just arrived; return whether they are the first."""
        self.tokens += tokens
        return self.timing.add(tokens, self._clock())

    def finish(self, until_close: bool) -> bytes:
        """Judge whether the response, which has ended, is complete; return what is still to be sent to the client.

        ``until_close``: see :class:`~workers.engine.connections.exchange.ResponseHandler`.
        """
        body, stream = b"".join(self._body_parts), self._stream
        if not self._succeeded:
            refusal = self._backend.refusal(self._run.endpoint, self.status, body)
            if refusal is None and self.status < 400:
                refusal = self.failure(f"{self._backend.program} answered with status {self.status}")
            raise (
                refusal or failure_of_response(self.status, body, self._backend, seconds_to_wait(self._headers))
            ).raised()
        if self._bytes is not None:
            return self._finish_bytes(self._bytes, until_close)
        if stream is None:
            return self._finish_whole(body, until_close)
        rest = b""
        if not stream.finished and not self.request.end_marker:
            rest = self.feed(_LAST_EVENT).data
        if stream.error is not None:
            raise failure_of_response(500, stream.error, self._backend).raised()
        if not stream.finished:
            raise (failure_in_body(stream.rest, self._backend) or self._ended_early()).raised()
        return rest if self._assembler is None else self._assembler.answer()

    def _finish_bytes(self, received: ByteStream, until_close: bool) -> bytes:
        """Return the bytes that were held back; raise the failure that an answer in text means."""
        rest, text = received.end(), received.text
        if text is not None:
            what, excerpt = f"{self._backend.program} answered with text", text[:300].decode("utf-8", "replace")
            raise (failure_in_body(text, self._backend) or self.failure(what, excerpt)).raised()
        if not received.is_complete(until_close):
            raise self._ended_early().raised()
        return rest

    def _finish_whole(self, body: bytes, until_close: bool) -> bytes:
        reported = failure_in_body(body, self._backend)
        if reported is None and until_close and not is_json(body):
            reported = self._ended_early()
        if reported is not None:
            raise reported.raised()
        try:
            body = self.request.translate(body) if self.request.translate else body
            if not self._run.stream:
                check_answer(self._run.endpoint, body)
        except (ValueError, RecursionError) as problem:
            message = f"{self._backend.program} sent a response that makes no sense"
            raise self.failure(message, str(problem)).raised() from problem
        return self._as_stream(body) if self._run.stream else self._renamed(body)

    def _as_stream(self, body: bytes) -> bytes:
        """Return the events for the client of a whole response that was translated into a stream."""
        self._stream = TranscriptFilter()
        return self._stream.feed(body).data

    def _renamed(self, body: bytes) -> bytes:
        """Note the usage, and write the name that the client used for the model, and the engine's build."""
        if self.request.choices > 1 and not self.request.native:
            body = with_usage_of_all(body)
        self._summaries = native_summaries(body) if self.request.native else summaries_of([body])
        if not any(each.usage for each in self._summaries):
            self._whole = body
        backend, once = self._backend, -1 if self.request.native else 1
        for old, new in renames(backend.alias, self._run.model, (backend.reported_build, backend.build)):
            body = body.replace(old, new, once)
        return dated(body, backend.clock_shift) if backend.clock_shift else body

    def _ended_early(self) -> Failure:
        return self.failure(f"{self._backend.program} ended its response early")

    def failure(self, message: str, detail: str = "", code: Code = Code.BACKEND_ERROR) -> Failure:
        """Return a failure that says how many tokens the client has got."""
        return Failure(code, message, model=self._run.model, detail=detail, tokens_sent=self.tokens_sent)

    def lost(self, failure: Failure, *, by_request: bool) -> Failure:
        """Return what the client is told when the engine has died. ``by_request``: of this request."""
        message = f"{failure.message}; it was working on this request, which is not tried again"
        return msgspec.structs.replace(
            failure,
            message=message if by_request else failure.message,
            by_request=by_request or failure.by_request,
            tokens_sent=self.tokens_sent,
        )

    def outcome(self, model: str) -> Outcome:
        """Return the cost of the finished generation of ``model``."""
        reader = self._bytes or self._stream
        summaries = reader.summaries() if reader is not None else self._summaries
        totals = totals_of(summaries, self.request.choices, in_turn=self.request.in_turn)
        prompt, output = totals.prompt, totals.output or self.tokens
        estimated = self._run.endpoint in _COUNTED and not totals.reported
        if estimated:
            prompt = estimated_prompt_tokens(self.request.body)
            output = output or estimated_answer_tokens(self._whole)
        now = self._clock()
        # A patient connection was not read for each token, so only the engine knows when its tokens came.
        watched = not (self.request.patient and totals.span)
        marks = self._assembler.marks if isinstance(self._assembler, ResponseAssembler) else []
        times = self.timing.finish(output, now, totals.span, watched, marks)
        return Outcome(
            model=model,
            prompt_tokens=prompt,
            cached_tokens=totals.cached,
            output_tokens=output,
            first_token_s=times.first,
            decode_s=times.decode,
            total_s=now - self.began_at,
            token_times=times.each if self._bytes is None else b"",
            queue_s=self._run.waited,
            estimated=estimated,
        )
