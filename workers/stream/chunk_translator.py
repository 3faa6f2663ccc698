"""Translates a stream that deviates from OpenAI's format into llama-server's form. Pure.

Every chunk is decoded, so this is for engines that generate few tokens a second, and for servers that are not known.
It corrects the order of the fields, a role in every delta or in none, text in the chunk that ends the response, usage inside
that chunk or in every chunk, null instead of nothing, and ends that report a failure. A role waits for the first token:
some servers send it before they read the prompt, and a request of which a client has got something cannot be tried again.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from workers.stream.sse_parser import EVENT_END, LineEnds, SseParser, data_of
from workers.stream.usage import is_usage

_FAILED: Final = {"abort": "was ended", "cancel": "was cancelled", "error": "failed"}
"""Value of `finish_reason` with which some engines end a failed generation → what happened, in words."""
_MS_PER_S: Final = 1000.0
_NULL: Final = msgspec.Raw(b"null")
_OTHER_NAMES: Final = {"reasoning": "reasoning_content"}
"""What some servers call a part of a message → OpenAI's or llama-server's name for it."""


class _EngineChoice(msgspec.Struct):
    index: int | None = None
    delta: dict[str, Any] | None = None
    text: str | None = None
    logprobs: msgspec.Raw = _NULL
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class _EngineChunk(msgspec.Struct, kw_only=True):
    id: str | None = None
    created: float | None = None
    system_fingerprint: str | None = None
    choices: list[_EngineChoice] | None = None
    usage: dict[str, Any] | None = None
    error: msgspec.Raw = _NULL
    object: str | None = None


_chunk = msgspec.json.Decoder(_EngineChunk).decode
_encode = msgspec.json.Encoder().encode


class ChunkTranslator:
    """Translates one stream."""

    def __init__(self, chat: bool, model: str) -> None:
        """Translate a chat, or a text completion. ``model``: the engine's name for the model."""
        self._chat, self._model = chat, model
        self.restart()

    def restart(self) -> None:
        """Begin another stream."""
        self._lines, self._parser = LineEnds(), SseParser()
        self._begun: set[int] = set()
        """Choices whose role was sent."""
        self._counted: tuple[_EngineChunk, dict[str, Any]] | None = None
        """The chunk with the last usage, and the usage: some servers report it again and again."""
        self._is_error_body = False

    def feed(self, data: bytes) -> bytes:
        """Take bytes from the engine; return the events that they complete. Raises ValueError for a broken one.

        A body that is not a stream, because the engine answers with an error, is returned unchanged.
        """
        self._is_error_body = self._is_error_body or (not self._parser.rest and data.lstrip()[:1] == b"{")
        if self._is_error_body:
            return data
        events = self._parser.feed(self._lines.feed(data)).split(EVENT_END)
        return b"".join(self._event(payload) for event in events if (payload := data_of(event)))

    def _event(self, payload: bytes) -> bytes:
        if payload == b"[DONE]":
            counts = self._usage(*self._counted) if self._counted is not None else b""
            return counts + b"data: [DONE]" + EVENT_END
        chunk = _chunk(payload)
        if chunk.error != _NULL:
            return b'data: {"error":' + bytes(chunk.error) + b"}" + EVENT_END
        if chunk.object == "error":
            return b'data: {"error":' + payload + b"}" + EVENT_END
        if chunk.usage and is_usage(chunk.usage):
            self._counted = chunk, chunk.usage
        return b"".join(self._choice(chunk, choice) for choice in chunk.choices or [])

    def _choice(self, chunk: _EngineChunk, choice: _EngineChoice) -> bytes:
        if choice.finish_reason in _FAILED:
            message = f"the generation {_FAILED[choice.finish_reason]}"
            error = {"error": {"message": message, "type": "server_error", "code": 500}}
            return b"data: " + _encode(error) + EVENT_END
        index, more = choice.index or 0, _more(choice)
        if not self._chat:
            text = choice.text or ""
            if not text and not choice.finish_reason:
                return b""
            body = {"text": text, "index": index, "logprobs": choice.logprobs, "finish_reason": choice.finish_reason}
            return self._write(chunk, [body | more])
        given = _without_nulls(choice.delta or {})
        delta = {_OTHER_NAMES.get(name, name): value for name, value in given.items() if name != "role" and value}
        events = b""
        if index not in self._begun and (delta or choice.finish_reason):
            self._begun.add(index)
            events = self._delta(chunk, index, {"role": "assistant", "content": None})
        logprobs = {"logprobs": choice.logprobs} if choice.logprobs != _NULL else {}
        if delta:
            events += self._delta(chunk, index, delta, more=logprobs)
        if choice.finish_reason:
            events += self._delta(chunk, index, {}, choice.finish_reason, more if delta else more | logprobs)
        return events

    def _delta(
        self,
        chunk: _EngineChunk,
        index: int,
        delta: dict[str, Any],
        finish: str | None = None,
        more: dict[str, Any] | None = None,
    ) -> bytes:
        return self._write(chunk, [{"finish_reason": finish, "index": index, "delta": delta, **(more or {})}])

    def _usage(self, chunk: _EngineChunk, usage: dict[str, Any]) -> bytes:
        more: dict[str, Any] = {"usage": usage}
        # The filter searches for the timings at the end.
        if timings := _timings(usage):
            more["timings"] = timings
        return self._write(chunk, [], more)

    def _write(self, chunk: _EngineChunk, choices: list[dict[str, Any]], more: dict[str, Any] | None = None) -> bytes:
        fields: dict[str, Any] = {"choices": choices, "created": int(chunk.created or 0), "id": chunk.id or ""}
        fields["model"] = self._model
        if chunk.system_fingerprint:
            fields["system_fingerprint"] = chunk.system_fingerprint
        fields["object"] = "chat.completion.chunk" if self._chat else "text_completion"
        return b"data: " + _encode(fields | (more or {})) + EVENT_END


def _more(choice: _EngineChoice) -> dict[str, Any]:
    """Return the stop sequence that ended a choice, if the server names it: vLLM may also give a token's number."""
    return {"stop_reason": choice.stop_reason} if isinstance(choice.stop_reason, str) else {}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _timings(usage: dict[str, Any]) -> dict[str, float] | None:
    """Return an engine's durations in ``usage`` under llama-server's names; None if it has none."""
    seconds = [usage.get(name) for name in ("prefill_duration_ttft", "decoding_duration")]
    tokens = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    prompt, decode, prompt_tokens, output_tokens = (
        float(each) if isinstance(each, int | float) else 0.0 for each in (*seconds, *tokens)
    )
    if not prompt and not decode:
        return None
    return {
        "cache_n": 0,
        "prompt_n": int(prompt_tokens),
        "prompt_ms": prompt * _MS_PER_S,
        "prompt_per_second": prompt_tokens / prompt if prompt else 0.0,
        "predicted_n": int(output_tokens),
        "predicted_ms": decode * _MS_PER_S,
        "predicted_per_second": output_tokens / decode if decode else 0.0,
    }
