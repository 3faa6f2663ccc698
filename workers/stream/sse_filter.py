"""Filters an engine's server-sent events for a client: whole events in, whole events out. Pure.

The worker asks the engine for more than its client did (progress and usage); that is removed here.  The rest is what
llama-server would have sent without being asked for it: then its finish chunk carries the timings.  They now arrive in
the usage chunk after it, so the finish chunk is held until they can be inserted.

Invariants:

* Only whole events are passed on, and all of them in their order.
* ``finished`` is true only if the engine sent its end marker.
* No token is parsed as JSON.  Searching for a key by its bytes is sound, because inside a JSON string every quote has a
  backslash before it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from protocol.wire.decoding import DECODE_ERRORS
from workers.stream.usage import ChoiceUsage, usage_event, without_usage

MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
EVENT_END: Final = b"\n\n"
_CHOICE: Final = b'data: {"choices":[{'
PROGRESS: Final = b'"prompt_progress":{'
_FINISH: Final = b'"finish_reason":"'
_NO_CHOICES: Final = b'"choices":[]'
_ROLE: Final = b'"delta":{"role":'
_TIMINGS: Final = b',"timings":{'
_USAGE: Final = b'"usage":{'


class FilteredEvents(NamedTuple):
    """What one piece of an engine's response is worth to the client."""

    data: bytes
    tokens: int
    alive: bool
    """The engine showed progress without output."""


class EngineTimings(msgspec.Struct):
    """The times of one choice, measured by the engine."""

    cache_n: int = 0
    prompt_ms: float = 0.0
    predicted_ms: float = 0.0


class ChoiceSummary(msgspec.Struct):
    """What the engine reports at the end of a choice."""

    usage: ChoiceUsage | None = None
    timings: EngineTimings | None = None


_decode_summary = msgspec.json.Decoder(ChoiceSummary).decode


class SseFilter:
    """Filters one stream."""

    def __init__(
        self, usage: bool, progress: bool, alias: str = "", model: str = "", prompts: int = 1, choices: int = 1
    ) -> None:
        """Keep usage and progress events if asked; write ``model`` where the engine calls the model ``alias``.

        ``prompts`` of the request, ``choices`` of each: one usage chunk counts all of them, behind the last.
        """
        self._choices = choices
        self._counts_apart = prompts * choices > 1
        """Whether the engine's own counts are not those of the whole request."""
        self._usage, self._progress = usage, progress
        self._old = b'"model":' + msgspec.json.encode(alias)
        self._new = b'"model":' + msgspec.json.encode(model)
        self.rest = b""
        """What has arrived after the last whole event."""
        self._held: list[bytes] = []
        self._summaries: list[bytes] = []
        self.finished = False
        """The end marker has arrived."""
        self.error: bytes | None = None
        """The engine's error, as JSON, if it sent one in the stream."""

    def feed(self, data: bytes) -> FilteredEvents:
        """Take bytes from the engine; return what may be passed on. Raises ValueError for an endless event."""
        if self.rest:
            data = self.rest + data
        end = data.rfind(EVENT_END)
        if end < 0:
            if len(data) > MAX_EVENT_BYTES:
                raise ValueError("the engine sent an event without an end")
            self.rest = data
            return FilteredEvents(b"", 0, alive=False)
        end += 2
        self.rest = data[end:]
        block = data[:end] if self.rest else data
        tokens = self._tokens_of_plain(block)
        if tokens is not None:
            return FilteredEvents(self._renamed(block), tokens, alive=False)
        return self._filter_each(block)

    def _tokens_of_plain(self, block: bytes) -> int | None:
        """Return the tokens of events that are all passed on as they are; None if there may be others among them."""
        count = block.count(_CHOICE)
        if count == block.count(EVENT_END) and PROGRESS not in block and _FINISH not in block:
            return count - block.count(_ROLE)
        return None

    def _renamed(self, block: bytes) -> bytes:
        return block if self._old == self._new else block.replace(self._old, self._new)

    def _filter_each(self, block: bytes) -> FilteredEvents:
        out: list[bytes] = []
        tokens, alive = 0, False
        for piece in block.split(EVENT_END):
            event = piece.strip(b"\n")
            if event:
                kept, token, shows_life = self._filter_event(event + EVENT_END)
                out += kept
                tokens += token
                alive = alive or shows_life
        return FilteredEvents(self._renamed(b"".join(out)), tokens, alive)

    def _filter_event(self, event: bytes) -> tuple[list[bytes], int, bool]:
        if not event.startswith(b"data:"):
            if event.startswith(b"error:"):
                self.error = event[6:].strip()
            return [], 0, True
        payload = event[5:].strip()
        if payload == b"[DONE]":
            self.finished = True
            return [*self._release_held(), *self._total()], 0, False
        if payload == b"null":
            # llama-server begins the stream of several prompts with it, unless progress is asked for.
            return [], 0, True
        if payload.startswith(b'{"error":'):
            self.error = payload
            return [], 0, False
        if PROGRESS in event:
            return [event] if self._progress else [], 0, True
        return self._filter_chunk(event, payload)

    def _filter_chunk(self, event: bytes, payload: bytes) -> tuple[list[bytes], int, bool]:
        """Return what is passed on of an event with a chunk, its tokens, and whether it only shows life."""
        if _NO_CHOICES in event:
            return self._usage_chunk(event, payload)
        if _FINISH in event:
            return self._finish_chunk(event, payload)
        return [event], int(_ROLE not in event), False

    def _usage_chunk(self, event: bytes, payload: bytes) -> tuple[list[bytes], int, bool]:
        self._summaries.append(payload)
        if self._usage and not self._counts_apart:
            return [event], 0, False
        start = event.rfind(_TIMINGS)
        if start >= 0 and self._held and _TIMINGS not in self._held[-1]:
            self._held[-1] = self._held[-1].rstrip()[:-1] + event[start:]
        return self._release_held(), 0, False

    def _finish_chunk(self, event: bytes, payload: bytes) -> tuple[list[bytes], int, bool]:
        if _USAGE in event:
            self._summaries.append(payload)
            self._counts_apart = True
            return [without_usage(payload)], 0, False
        if self._usage and not self._counts_apart:
            return [event], 0, False
        self._held.append(event)
        return [], 0, False

    def _total(self) -> list[bytes]:
        """Return the usage chunk of the whole request, unless the engine's own was passed on."""
        if not self._usage or not self._counts_apart or not self._summaries:
            return []
        usages = [summary.usage for summary in self.summaries() if summary.usage is not None]
        return [usage_event(self._summaries[-1], usages, self._choices)]

    def _release_held(self) -> list[bytes]:
        held, self._held = self._held, []
        return held

    def summaries(self) -> list[ChoiceSummary]:
        """Return what the engine reported at the end of each choice."""
        return summaries_of(self._summaries)


def summaries_of(payloads: list[bytes]) -> list[ChoiceSummary]:
    """Read the counts in JSON objects; an object without them is left out."""
    found = []
    for payload in payloads:
        try:
            found.append(_decode_summary(payload))
        except DECODE_ERRORS:
            continue
    return found
