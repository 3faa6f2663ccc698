"""Translates a stream that deviates from OpenAI's format into llama-server's form. Pure.

Every chunk is decoded, so this is for engines that generate few tokens a second. It corrects the order of the fields, a
role in every delta, text in the chunk that ends the response, usage inside that chunk, and ends that report a failure.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from workers.stream.sse_parser import EVENT_END, SseParser, payload_of

_FAILED: Final = {"cancel": "was cancelled", "error": "failed"}
"""Value of `finish_reason` with which some engines end a failed generation → what happened, in words."""
_MS_PER_S: Final = 1000.0


class _EngineChoice(msgspec.Struct):
    index: int = 0
    delta: dict[str, Any] | None = None
    text: str | None = None
    logprobs: msgspec.Raw = msgspec.Raw(b"null")
    finish_reason: str | None = None


class _EngineChunk(msgspec.Struct, kw_only=True):
    id: str = ""
    created: int = 0
    system_fingerprint: str = ""
    choices: list[_EngineChoice]
    usage: dict[str, Any] | None = None


_chunk = msgspec.json.Decoder(_EngineChunk).decode
_encode = msgspec.json.Encoder().encode


class ChunkTranslator:
    """Translates one stream."""

    def __init__(self, chat: bool, model: str) -> None:
        """Translate a chat, or a text completion. ``model``: the engine's name for the model."""
        self._chat, self._model = chat, model
        self._parser = SseParser()
        self._role_sent = self._is_error_body = False

    def feed(self, data: bytes) -> bytes:
        """Take bytes from the engine; return the events that they complete. Raises ValueError for a broken one.

        A body that is not a stream, because the engine answers with an error, is returned unchanged.
        """
        self._is_error_body = self._is_error_body or (not self._parser.rest and data.lstrip()[:1] == b"{")
        if self._is_error_body:
            return data
        events = self._parser.feed(data).split(EVENT_END)
        return b"".join(self._event(payload) for event in events if (payload := payload_of(event)))

    def _event(self, payload: bytes) -> bytes:
        if payload == b"[DONE]" or payload.startswith(b'{"error"'):
            return b"data: " + payload + EVENT_END
        chunk = _chunk(payload)
        events = b"".join(self._choice(chunk, choice) for choice in chunk.choices)
        return events + (self._usage(chunk, chunk.usage) if chunk.usage else b"")

    def _choice(self, chunk: _EngineChunk, choice: _EngineChoice) -> bytes:
        if choice.finish_reason in _FAILED:
            message = f"the generation {_FAILED[choice.finish_reason]}"
            error = {"error": {"message": message, "type": "server_error", "code": 500}}
            return b"data: " + _encode(error) + EVENT_END
        events = b""
        if not self._chat:
            text = choice.text or ""
            if text or choice.finish_reason:
                body = {"text": text, "index": choice.index, "logprobs": choice.logprobs}
                events = self._write(chunk, [{**body, "finish_reason": choice.finish_reason}])
            return events
        if not self._role_sent:
            self._role_sent = True
            events = self._delta(chunk, choice.index, {"role": "assistant", "content": None})
        delta = {name: value for name, value in (choice.delta or {}).items() if name != "role" and value}
        if delta:
            events += self._delta(chunk, choice.index, delta)
        if choice.finish_reason:
            events += self._delta(chunk, choice.index, {}, choice.finish_reason)
        return events

    def _delta(self, chunk: _EngineChunk, index: int, delta: dict[str, Any], finish: str | None = None) -> bytes:
        return self._write(chunk, [{"finish_reason": finish, "index": index, "delta": delta}])

    def _usage(self, chunk: _EngineChunk, usage: dict[str, Any]) -> bytes:
        more: dict[str, Any] = {"usage": usage}
        # The filter searches for the timings at the end.
        if timings := _timings(usage):
            more["timings"] = timings
        return self._write(chunk, [], more)

    def _write(self, chunk: _EngineChunk, choices: list[dict[str, Any]], more: dict[str, Any] | None = None) -> bytes:
        fields: dict[str, Any] = {"choices": choices, "created": chunk.created, "id": chunk.id, "model": self._model}
        if chunk.system_fingerprint:
            fields["system_fingerprint"] = chunk.system_fingerprint
        fields["object"] = "chat.completion.chunk" if self._chat else "text_completion"
        return b"data: " + _encode(fields | (more or {})) + EVENT_END


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
