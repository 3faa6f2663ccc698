"""Streams of llama.cpp's own completions: the part for the client, and the whole answer made from one. Pure.

Each event is an object with ``index`` (which completion), ``content`` and ``stop``. The last one of each completion
says ``"stop":true`` and has the figures. There is no end marker: the stream is complete when all its completions have
stopped.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from protocol.failures import DECODE_ERRORS
from protocol.wire.openai_chunks import payloads
from workers.stream.sse_filter import PROGRESS, ChoiceSummary, EngineTimings, SseFilter, as_list
from workers.stream.sse_parser import EVENT_END
from workers.stream.usage import ChoiceUsage

_CHUNK: Final = b'data: {"index":'
_STOP: Final = b'"stop":true'
_PROBABILITIES: Final = "completion_probabilities"


class _Figures(msgspec.Struct):
    """The counts and times in the last event of a completion."""

    tokens_evaluated: int = 0
    tokens_predicted: int = 0
    timings: EngineTimings | None = None


class _EngineEvent(msgspec.Struct, gc=False):
    content: str
    index: int
    stop: bool = False


class _TokenEvent(_EngineEvent, kw_only=True, gc=False):
    content: str = ""
    tokens: list[int] = []
    completion_probabilities: list[msgspec.Raw] | None = None


_event: Final = msgspec.json.Decoder(_EngineEvent).decode
_events: Final = msgspec.json.Decoder(list[_EngineEvent]).decode
_token_event: Final = msgspec.json.Decoder(_TokenEvent).decode
_object: Final = msgspec.json.Decoder(dict[str, Any]).decode
_figures: Final = msgspec.json.Decoder(_Figures | list[_Figures]).decode


def native_summaries(answer: bytes) -> list[ChoiceSummary]:
    """Read the figures of one completion, or of several in a list; returns none for anything else."""
    try:
        figures = _figures(answer)
    except DECODE_ERRORS:
        return []
    return [
        ChoiceSummary(ChoiceUsage(each.tokens_evaluated, each.tokens_predicted), each.timings)
        for each in (figures if isinstance(figures, list) else [figures])
    ]


class NativeCompletionFilter(SseFilter):
    """Filters one stream. Searching for ``"stop":true`` is sound: inside a JSON string, every quote has a backslash."""

    def __init__(self, progress: bool, alias: str, model: str, completions: int) -> None:
        """Keep progress events if requested; write ``model`` for ``alias``; expect this many completions."""
        super().__init__(usage=False, progress=progress, alias=alias, model=model, prompts=completions)

    def _tokens_of_plain(self, block: bytes) -> int | None:
        count = block.count(_CHUNK)
        if count != block.count(EVENT_END) or PROGRESS in block or _STOP in block:
            return None
        if len(_events(as_list(block))) != count:
            raise ValueError("the engine sent an event with several chunks")
        return count

    def _end(self) -> None:
        """Ignore an end marker: the ends of all completions count as one."""

    def _filter_chunk(self, event: bytes, payload: bytes) -> tuple[list[bytes], int, bool]:
        if not _event(payload).stop:
            return [event], 1, False
        self._summaries.append(payload)
        self._expected -= 1
        self.finished = self._expected <= 0
        return [event], 0, False

    def summaries(self) -> list[ChoiceSummary]:
        """Return what the engine reported at the end of each completion."""
        return [summary for payload in self._summaries for summary in native_summaries(payload)]


class NativeCompletionAssembler:
    """Makes the answer that the engine would have given without a stream, field by field.

    After a stop word, the answer has no probabilities of tokens that contain the stop word. The engine's own answer
    would leave out as many tokens as the stop word has on its own, which are others.
    """

    def __init__(self, return_tokens: bool) -> None:
        """Nothing has arrived. ``return_tokens``: the client asked for the tokens, which each event of a stream has."""
        self._contents: dict[int, list[str]] = {}
        self._tokens: dict[int, list[int]] = {}
        self._probabilities: dict[int, list[tuple[str, list[msgspec.Raw]]]] = {}
        """For each token, the text that came with it, and the JSON of its probabilities: as objects they have five times the size."""
        self._last: dict[int, dict[str, Any]] = {}
        self._return_tokens = return_tokens

    def feed(self, block: bytes) -> None:
        """Take whole events; raises ``DECODE_ERRORS`` for a malformed one."""
        for payload in payloads(block):
            event = _token_event(payload)
            index, content = event.index, event.content
            self._contents.setdefault(index, []).append(content)
            self._tokens.setdefault(index, []).extend(event.tokens)
            if event.completion_probabilities:
                copied = [msgspec.Raw(bytes(each)) for each in event.completion_probabilities]
                self._probabilities.setdefault(index, []).append((content, copied))
            if event.stop:
                self._last[index] = _object(payload)

    def answer(self) -> bytes:
        """Return the completion as JSON, or a list of several in the order of their indices."""
        answers = [self._whole(index) for index in sorted(self._last)]
        return msgspec.json.encode(answers[0] if len(answers) == 1 else answers)

    def _whole(self, index: int) -> dict[str, Any]:
        whole = {**self._last[index], "content": "".join(self._contents[index])}
        if self._return_tokens:
            whole["tokens"] = self._tokens[index]
        if index in self._probabilities:
            kept = self._probabilities[index]
            if whole.get("stop_type") == "word":
                kept = _without_stop_word(kept)
            whole[_PROBABILITIES] = [each for _, probabilities in kept for each in probabilities]
        if "generation_settings" in whole:
            whole["generation_settings"] = {**whole["generation_settings"], "stream": False}
        return whole


def _without_stop_word(tokens: list[tuple[str, list[msgspec.Raw]]]) -> list[tuple[str, list[msgspec.Raw]]]:
    """Leave out the token that completed the stop word, and those before it whose text was held back for it."""
    end = len(tokens) - 1
    while end > 0 and not tokens[end - 1][0]:
        end -= 1
    return tokens[:end]
