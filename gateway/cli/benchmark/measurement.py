"""One request that is measured, and many at the same time."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final, NamedTuple

import msgspec

from gateway.cli.api_client import ApiClient, stream_error
from gateway.cli.exit_codes import CommandError
from protocol.failures import DECODE_ERRORS
from protocol.wire.openai_chunks import Chunk, Usage, read_chunk, read_usage

_PATH: Final = "/v1/chat/completions"


class MeasuredRequest(msgspec.Struct, frozen=True):
    """What a client saw of one request. Times in seconds since it was sent."""

    error: str = ""
    """Why it failed, empty if it did not."""
    first_token_s: float = 0.0
    last_token_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Those of the prompt that the engine had in its cache."""
    output_tokens: int = 0

    @property
    def tokens_per_second(self) -> float | None:
        """How fast tokens came after the first one; None for an answer of one token."""
        duration = self.last_token_s - self.first_token_s
        return (self.output_tokens - 1) / duration if self.output_tokens > 1 and duration > 0 else None

    @property
    def prompt_tokens_per_second(self) -> float | None:
        """What a client sees of the speed of the prompt: without what was cached, and with any wait."""
        computed = self.prompt_tokens - self.cached_tokens
        return computed / self.first_token_s if computed > 0 and self.first_token_s > 0 else None


def measure(server: ApiClient, request: dict[str, Any]) -> MeasuredRequest:
    """Send a chat request and read its stream to the end."""
    body = {**request, "stream": True, "stream_options": {"include_usage": True}}
    began = time.monotonic()
    first = last = 0.0
    usage: Usage | None = None
    try:
        with closing(server.stream(_PATH, body)) as events:
            for event in events:
                now = time.monotonic() - began
                if event.data == "[DONE]":
                    return _whole(first, last, usage or Usage())
                chunk = read_chunk(event.data)
                if not chunk.choices and (error := stream_error(msgspec.json.decode(event.data))):
                    raise error
                if _has_tokens(chunk):
                    first, last = first or now, now
                usage = read_usage(chunk) or usage
    except CommandError as problem:
        return MeasuredRequest(str(problem).partition("\n")[0])
    except DECODE_ERRORS as problem:
        return MeasuredRequest(f"the answer cannot be read: {problem}")
    return MeasuredRequest("the answer broke off: the stream ended without its end mark")


def _has_tokens(chunk: Chunk) -> bool:
    return any(
        each.content or (each.delta is not None and (each.delta.reasoning_content or each.delta.tool_calls))
        for each in chunk.choices
    )


def _whole(first: float, last: float, usage: Usage) -> MeasuredRequest:
    if not first:
        return MeasuredRequest("the answer is empty")
    cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else 0
    return MeasuredRequest("", first, last, usage.prompt_tokens, cached, usage.completion_tokens)


class StreamsAtOnce(NamedTuple):
    """What was measured with a number of streams."""

    streams: int
    requests: list[MeasuredRequest]
    seconds: float
    """From the first request to the end of the last answer."""
    busy: float
    """The share of a core that this process used meanwhile."""


def measure_streams(streams: int, number: int, send: Callable[[], MeasuredRequest]) -> StreamsAtOnce:
    """Call ``send`` this number of times, in ``streams`` threads.

    If this is interrupted, the threads go on until the process ends, which closes their connections: the server then cancels their requests.
    """
    done: queue.SimpleQueue[MeasuredRequest] = queue.SimpleQueue()
    together = threading.Barrier(streams + 1)
    turns = iter(range(number))  # one call of next() at a time: no two threads get the same turn

    def run() -> None:
        together.wait()
        for _ in turns:
            try:
                result = send()
            except Exception as problem:  # noqa: BLE001 - whatever it is, the results are waited for
                result = MeasuredRequest(repr(problem))
            done.put(result)

    for _ in range(streams):
        threading.Thread(target=run, daemon=True).start()
    began, used = time.monotonic(), time.process_time()
    together.wait()
    requests = [done.get() for _ in range(number)]
    seconds = time.monotonic() - began
    return StreamsAtOnce(streams, requests, seconds, (time.process_time() - used) / max(seconds, 1e-9))
