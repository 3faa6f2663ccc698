"""Answers of ``generate`` and ``chat``, whole and as NDJSON: one object has Mullama's and Ollama's fields, tool calls and times.

Pure except for the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from gateway.api.common import ndjson
from gateway.api.common.inference.stream_writer import ChunkWriter
from gateway.api.common.inference.whole_answers import CompletedChoice, read_completion
from gateway.requests.answer_stream import WholeAnswer
from protocol.failures import DECODE_ERRORS, Failure, not_understood
from protocol.wire.openai_chunks import (
    ChoiceDelta,
    Chunk,
    MessageDelta,
    ToolCallDelta,
    Usage,
    read_usage,
)

_CUT_OFF: Final = "length"
_DONE_REASONS: Final = {"tool_calls": "stop"}
"""OpenAI's ``finish_reason`` → Ollama's ``done_reason``, where they differ."""
_NS_PER_S: Final = 1_000_000_000
_NS_PER_MS: Final = 1_000_000
_NO_RAW: Final = msgspec.Raw(b"")
_LINE_START: Final = b'{"model":%b,"created_at":"%b",%b'
_LINE_END: Final = b'%b,"done":false}\n'
_encode: Final = msgspec.json.Encoder().encode
_decode_arguments: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class ToolCalls:
    """Collects the tool calls of one answer from their pieces; their arguments become objects."""

    def __init__(self) -> None:
        """Begin without calls."""
        self._calls: dict[int, _CollectedCall] = {}

    def add(self, deltas: Iterable[ToolCallDelta], *, whole: bool = False) -> None:
        """Add pieces of calls. ``whole``: each piece is a complete call, without an index."""
        for position, delta in enumerate(deltas):
            call = self._calls.setdefault(position if whole else delta.index, _CollectedCall())
            call.id = call.id or delta.id
            call.name += delta.function.name
            call.arguments += delta.function.arguments

    def take(self, finish_reason: str) -> list[dict[str, Any]]:
        """Return and remove the calls of an answer that has ended; raises ``DECODE_ERRORS`` for a malformed one.

        If the answer was cut off within a call, that call is left out.
        """
        calls, self._calls = self._calls, {}
        written = []
        for index, call in sorted(calls.items()):
            try:
                arguments = _decode_arguments(call.arguments or "{}")
            except DECODE_ERRORS:
                if finish_reason == _CUT_OFF:
                    continue
                raise
            function = {"index": index, "name": call.name, "arguments": arguments}
            written.append({**({"id": call.id} if call.id else {}), "function": function})
        return written


class _CollectedCall(msgspec.Struct):
    id: str = ""
    name: str = ""
    arguments: str = ""


class _Timings(msgspec.Struct):
    """The engine's own times, in milliseconds."""

    prompt_ms: float = 0.0
    predicted_ms: float = 0.0


_decode_timings: Final = msgspec.json.Decoder(_Timings | None).decode


def statistics(usage: Usage, timings: msgspec.Raw, elapsed: float) -> dict[str, Any]:
    """Return the fields of a last line. ``elapsed``: seconds since the request came; ``timings`` may be empty.

    ``load_duration`` is the time before the engine began: in the queue, and for loading the model if necessary. Raises
    ``DECODE_ERRORS`` for malformed timings.
    """
    times = (_decode_timings(timings) if bytes(timings) else None) or _Timings()
    total = int(elapsed * _NS_PER_S)
    prompt, decode = int(times.prompt_ms * _NS_PER_MS), int(times.predicted_ms * _NS_PER_MS)
    tokens = usage.completion_tokens
    # A single token takes the time of the prompt: the engine's time after it is meaningless.
    seconds = (decode if tokens > 1 and decode else total) / _NS_PER_S
    return {
        "total_duration": total,
        "load_duration": max(0, total - prompt - decode),
        "prompt_eval_count": usage.prompt_tokens,
        "prompt_eval_duration": prompt,
        "eval_count": tokens,
        "eval_duration": decode,
        "total_duration_ms": total // _NS_PER_MS,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": tokens,
        "tokens_per_second": round(tokens / seconds, 2) if seconds > 0 else 0.0,
    }


class AnswerPart(NamedTuple):
    """Text, thoughts and tool calls, added by a line or of a whole answer."""

    content: str = ""
    thinking: str = ""
    tool_calls: list[dict[str, Any]] = []  # noqa: RUF012 - never changed


AnswerShape = Callable[[AnswerPart], dict[str, Any]]
"""Returns the fields of a line with what the model wrote."""


def text_fields(part: AnswerPart) -> dict[str, Any]:
    """Return the fields of ``generate``."""
    return {"response": part.content, **({"thinking": part.thinking} if part.thinking else {})}


def message_fields(part: AnswerPart) -> dict[str, Any]:
    """Return the fields of ``chat``."""
    message: dict[str, Any] = {"role": "assistant", "content": part.content}
    if part.thinking:
        message["thinking"] = part.thinking
    if part.tool_calls:
        message["tool_calls"] = part.tool_calls
    return {"message": message}


class AnswerClock(NamedTuple):
    """The time of day for lines, and the duration of an answer."""

    elapsed: Callable[[], float]
    """Returns the seconds since the request came."""
    now: Callable[[], int] = time.time_ns
    """Returns the nanoseconds since the Unix epoch."""

    def created_at(self) -> str:
        """Return the time of day in RFC 3339's form, in UTC."""
        seconds, fraction = divmod(self.now(), _NS_PER_S)
        return f"{_second_text(seconds)}.{fraction // 1000:06}Z"


@lru_cache(maxsize=4)
def _second_text(seconds: int) -> str:
    """Return a second in RFC 3339's form. Cached, because every line of every stream has one."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _around_text(shape: AnswerShape) -> tuple[bytes, bytes]:
    """Return the parts before and after the text in the fields of a line that only adds text."""
    before, _, after = _encode(shape(AnswerPart("\0"))).partition(_encode("\0"))
    return before[1:], after[:-1]


class AnswerWriter(ChunkWriter):
    """Writes a stream: a line for each piece, one line with all complete tool calls, and the last line."""

    media_type = ndjson.MEDIA_TYPE

    def __init__(self, shape: AnswerShape, clock: AnswerClock) -> None:
        """Write lines of this shape."""
        self._shape, self._clock = shape, clock
        self._model = ""
        self._reason = "stop"
        self._usage: Usage | None = None
        self._timings = _NO_RAW
        self._calls = ToolCalls()
        self._before_text, after_text = _around_text(shape)
        self._line_start = b""
        """The beginning, up to the text, of lines for pieces that came together."""
        self._line_end = _LINE_END % after_text

    def events(self, events: bytes) -> bytes:
        """Return the lines of events that came together. All have the same time."""
        self._line_start = b""
        return super().events(events)

    def text(self, text: str) -> bytes:
        """Return the line of one more piece of the text.

        There is one for each token, so it is not encoded as a whole.
        """
        if not self._model:
            return b""
        if not self._line_start:
            created_at = self._clock.created_at().encode()
            self._line_start = _LINE_START % (_encode(self._model), created_at, self._before_text)
        return b"%b%b%b" % (self._line_start, _encode(text), self._line_end)

    def chunk(self, chunk: Chunk) -> bytes:
        """Return the lines of one chunk."""
        self._model = self._model or chunk.model
        self._usage = read_usage(chunk) or self._usage
        self._timings = chunk.timings if bytes(chunk.timings) else self._timings
        return b"".join(map(self._choice, chunk.choices))

    def _choice(self, choice: ChoiceDelta) -> bytes:
        delta = choice.delta or MessageDelta()
        self._calls.add(delta.tool_calls)
        part = AnswerPart(choice.content, delta.reasoning_content or "")
        if choice.finish_reason:
            self._reason = choice.finish_reason
            part = part._replace(tool_calls=self._calls.take(choice.finish_reason))
        probabilities = choice.logprobs.content if choice.logprobs else None
        if not (any(part) or probabilities):
            return b""
        more = {"logprobs": probabilities} if probabilities else {}
        return ndjson.line({**self._head(), **self._shape(part), "done": False, **more})

    def _head(self) -> dict[str, Any]:
        return {"model": self._model, "created_at": self._clock.created_at()}

    def end(self) -> bytes:
        """Return the last line."""
        last = _last_fields(self._reason, self._usage or Usage(), self._timings, self._clock)
        return ndjson.line({**self._head(), **self._shape(AnswerPart()), **last})

    def error(self, failure: Failure, label: str) -> bytes:
        """Return the error as the last line."""
        return ndjson.error_line(failure, label)


def write_whole(answer: WholeAnswer, shape: AnswerShape, clock: AnswerClock) -> bytes:
    """Return a whole answer; raises ``backend_error`` if the engine's answer cannot be read."""
    whole = read_completion(answer)
    choice = whole.choices[0] if whole.choices else CompletedChoice()
    message, reason, calls = choice.answered, choice.finish_reason or "stop", ToolCalls()
    calls.add(message.tool_calls or (), whole=True)
    usage = whole.usage or Usage(*answer.outcome.reported)
    try:
        part = AnswerPart(message.content or "", message.reasoning_content or "", calls.take(reason))
        last = _last_fields(reason, usage, whole.timings, clock)
    except DECODE_ERRORS as problem:
        raise not_understood(problem, answer.model) from None
    head = {"model": whole.model or answer.model, "created_at": clock.created_at()}
    probabilities = choice.logprobs.content if choice.logprobs else None
    more = {"logprobs": probabilities} if probabilities else {}
    return msgspec.json.encode({**head, **shape(part), **last, **more})


def _last_fields(reason: str, usage: Usage, timings: msgspec.Raw, clock: AnswerClock) -> dict[str, Any]:
    reason = _DONE_REASONS.get(reason, reason)
    return {"done": True, "done_reason": reason, **statistics(usage, timings, clock.elapsed())}


def model_state_line(model: str, reason: str, shape: AnswerShape, clock: AnswerClock) -> bytes:
    """Return the answer to a request that only loads or unloads a model. ``reason`` says which."""
    head = {"model": model, "created_at": clock.created_at()}
    return ndjson.line({**head, **shape(AnswerPart()), "done": True, "done_reason": reason})
