"""Filters an engine's server-sent events for a client: whole events in, whole events out. Pure.

The worker asks the engine for more than its client did (progress and usage), and this removes it. The rest is what
llama-server would have sent on its own, with the timings in its finish chunk. They now arrive in the usage chunk after
it, so the finish chunk is held until they can be inserted. `workers/requests/engine_answer.py` reads the answer, and uses this.

Invariants:

* Only whole events are passed on, all of them in order.
* Only chunks that every reader of a stream understands are passed on: an engine's bytes are not trusted.
* ``finished`` is true only if each choice has ended with a reason, and then the engine sent its end marker.
* No token is encoded again. Searching for a key by its bytes is sound, because inside a JSON string every quote has a
  backslash before it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from protocol.failures import DECODE_ERRORS
from protocol.wire.openai_chunks import ChoiceDelta, Chunk
from workers.stream.sse_parser import EVENT_END, SseParser, payload_of
from workers.stream.token_timing import EngineMark
from workers.stream.usage import ChoiceUsage, TokenCount, usage_event, without_usage

_CHOICE: Final = b'data: {"choices":[{'
PROGRESS: Final = b'"prompt_progress":{'
_FINISH: Final = b'"finish_reason":"'
_ROLE: Final = b'"delta":{"role":'
_NO_CONTENT: Final = b'"delta":{"role":"assistant","content":null}'
_EMPTY_CONTENT: Final = b'"delta":{"role":"assistant","content":""}'
"""OpenAI's first chunk of a message has an empty text."""
_TIMINGS: Final = b',"timings":{'
_USAGE: Final = b'"usage":{'


class FilteredEvents(NamedTuple):
    """What one piece of an engine's response means for the client."""

    data: bytes
    tokens: int
    alive: bool
    """The engine showed progress without output."""


class EngineTimings(msgspec.Struct):
    """The times of one choice, measured by the engine."""

    cache_n: TokenCount = 0
    prompt_ms: float = 0.0
    predicted_ms: float = 0.0
    predicted_n: int = 0

    def mark(self) -> EngineMark:
        """Return the engine's progress when it reported them."""
        return EngineMark(self.predicted_n, self.predicted_ms / 1000)


class _PromptProgress(msgspec.Struct):
    total: int = 0


class _Progress(msgspec.Struct):
    """An event that says how much of a prompt the engine has read."""

    prompt_progress: _PromptProgress


class ChoiceSummary(msgspec.Struct):
    """What the engine reports at the end of a choice."""

    usage: ChoiceUsage | None = None
    timings: EngineTimings | None = None


class _EngineChunk(Chunk, kw_only=True, gc=False):
    choices: list[ChoiceDelta]


_CREATED: Final = re.compile(rb'"created": ?(\d+)(?=[,}])')
_decode_summary: Final = msgspec.json.Decoder(ChoiceSummary).decode
_progress: Final = msgspec.json.Decoder(_Progress).decode
_chunk: Final = msgspec.json.Decoder(_EngineChunk).decode
_chunks: Final = msgspec.json.Decoder(list[_EngineChunk]).decode


def dated(data: bytes, clock_shift: int) -> bytes:
    """Return the JSON of an answer with ``created`` this many seconds later. Text in strings has other quotes."""
    return _CREATED.sub(lambda found: b'"created":%d' % (int(found[1]) + clock_shift), data)


def renames(alias: str, model: str, builds: tuple[str, str]) -> list[tuple[bytes, bytes]]:
    """Return what is replaced in the JSON of an answer, and by what: the engine's names for the model and for its build."""
    names = ((b'"model":', (alias, model)), (b'"system_fingerprint":', builds))
    return [(key + msgspec.json.encode(old), key + msgspec.json.encode(new)) for key, (old, new) in names if old != new]


class SseFilter:
    """Filters one stream."""

    def __init__(
        self,
        usage: bool,
        progress: bool,
        alias: str = "",
        model: str = "",
        prompts: int = 1,
        choices: int = 1,
        builds: tuple[str, str] = ("", ""),
        clock_shift: int = 0,
    ) -> None:
        """Keep usage and progress events if requested; replace the engine's ``alias`` for the model by ``model``.

        ``builds``: the engine's name for its build, and its replacement. ``prompts`` of the request, ``choices`` of
        each: one usage chunk after the last counts all of them. ``clock_shift``: see :func:`dated`.
        """
        self._choices = choices
        self._counts_apart = prompts * choices > 1
        """Whether the engine's own counts are not those of the whole request."""
        self._usage, self._progress = usage, progress
        self._renames = renames(alias, model, builds)
        self._clock_shift = clock_shift
        self._parser = SseParser()
        self._expected = prompts * choices
        """Choices that have not ended."""
        self._held: list[bytes] = []
        self._summaries: list[bytes] = []
        self.prompt_tokens = 0
        """For the longest prompt that the engine has begun to read, the tokens reported so far."""
        self.finished = False
        """Whether all choices have ended, and the end marker has arrived."""
        self.error: bytes | None = None
        """The engine's error, as JSON, if it sent one in the stream."""

    def feed(self, data: bytes) -> FilteredEvents:
        """Take bytes from the engine; return what may be passed on. Raises ``DECODE_ERRORS`` or ValueError for a broken stream."""
        block = self._parser.feed(data)
        if not block:
            return FilteredEvents(b"", 0, alive=False)
        if not block.isascii():
            block.decode()  # parts that are not read may contain bytes that are not text
        tokens = self._tokens_of_plain(block)
        if tokens is not None:
            return FilteredEvents(self._renamed(block), tokens, alive=False)
        return self._filter_each(block)

    def _tokens_of_plain(self, block: bytes) -> int | None:
        """Return the tokens of events that are all passed on unchanged; None if there may be others among them."""
        count = block.count(_CHOICE)
        if count == block.count(EVENT_END) and PROGRESS not in block and _FINISH not in block:
            chunks = _chunks(as_list(block))
            if len(chunks) != count:
                raise ValueError("the engine sent an event with several chunks")
            for chunk in chunks:
                _check(chunk)
            return count - block.count(_ROLE)
        return None

    def _renamed(self, block: bytes) -> bytes:
        block = block.replace(_NO_CONTENT, _EMPTY_CONTENT)
        for old, new in self._renames:
            block = block.replace(old, new)
        return dated(block, self._clock_shift) if self._clock_shift else block

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
        if event.startswith(b"error:"):
            self.error = event[6:].strip()
            return [], 0, False
        payload = payload_of(event)
        if payload == b"[DONE]":
            self._end()
            return [*self._release_held(), *self._total()], 0, False
        if payload in (b"", b"null"):
            # llama-server begins the stream of several prompts with ``null``, unless progress is requested.
            return [], 0, True
        if payload.startswith(b'{"error":'):
            self.error = payload
            return [], 0, False
        if PROGRESS in event:
            self.prompt_tokens = max(self.prompt_tokens, _progress(payload).prompt_progress.total)
            return [event] if self._progress else [], 0, True
        return self._filter_chunk(event, payload)

    def _end(self) -> None:
        """Take the end marker."""
        self.finished = self._expected <= 0

    def _filter_chunk(self, event: bytes, payload: bytes) -> tuple[list[bytes], int, bool]:
        """Return what is passed on of an event with a chunk, its tokens, and whether it only shows life."""
        chunk = _chunk(payload)
        if not chunk.choices:
            return self._usage_chunk(event, payload)
        _check(chunk)
        if ended := sum(choice.finish_reason is not None for choice in chunk.choices):
            self._expected -= ended
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

    @property
    def rest(self) -> bytes:
        """What has arrived after the last whole event."""
        return bytes(self._parser.rest)


def as_list(block: bytes) -> bytes:
    """Return the data of whole events, none of them a comment, as one JSON list, which takes half the time to read.

    JSON has no line feed within a string, so only the beginnings of events are replaced.
    """
    return b"[%b]" % block.removeprefix(b"data:").replace(EVENT_END + b"data:", b",")


def _check(chunk: Chunk) -> None:
    for choice in chunk.choices:
        if choice.delta is None and choice.text is None:
            raise ValueError("the engine sent a choice without content")


def summaries_of(payloads: list[bytes]) -> list[ChoiceSummary]:
    """Read the counts in JSON objects; an object without them is left out."""
    found = []
    for payload in payloads:
        try:
            found.append(_decode_summary(payload))
        except DECODE_ERRORS:
            continue
    return found
