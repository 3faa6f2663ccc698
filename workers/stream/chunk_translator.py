"""The stream of an engine that speaks OpenAI's language in its own way, written as llama-server writes it. Pure.

Every chunk is decoded, so this is for engines whose tokens are few and dear.  What differs is put right: the order
of the fields, a role in every delta, text in the chunk that ends the answer, usage inside that chunk, an end that
was none.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from workers.stream.sse_filter import MAX_EVENT_BYTES

_END: Final = b"\n\n"
_FAILED: Final = {"cancel": "was cancelled", "error": "failed"}
"""Value of `finish_reason` with which some engines end a failed generation → what happened, in words."""
_MS_PER_S: Final = 1000.0


class _ForeignChoice(msgspec.Struct):
    index: int = 0
    delta: dict[str, Any] | None = None
    text: str | None = None
    logprobs: msgspec.Raw = msgspec.Raw(b"null")
    finish_reason: str | None = None


class _ForeignChunk(msgspec.Struct):
    id: str = ""
    created: int = 0
    system_fingerprint: str = ""
    choices: list[_ForeignChoice] = []
    usage: dict[str, Any] | None = None


_chunk = msgspec.json.Decoder(_ForeignChunk).decode
_encode = msgspec.json.Encoder().encode


class ChunkTranslator:
    """Translates one stream."""

    def __init__(self, chat: bool, model: str) -> None:
        """Of a chat, or of a text completion; ``model`` is what the engine calls it."""
        self._chat, self._model = chat, model
        self._rest = b""
        self._begun = self._no_stream = False

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the engine's; return the events that they complete. Raises ValueError for a broken one.

        What is no stream, because the engine answers with an error, is returned as it is.
        """
        data = self._rest + data
        self._no_stream = self._no_stream or data.lstrip()[:1] == b"{"
        if self._no_stream:
            self._rest = b""
            return data
        *events, self._rest = data.split(_END)
        if len(self._rest) > MAX_EVENT_BYTES:
            raise ValueError("the engine sent an event without an end")
        return b"".join(self._event(event.strip()) for event in events)

    def _event(self, event: bytes) -> bytes:
        if not event.startswith(b"data:"):
            return b""
        payload = event[5:].strip()
        if payload == b"[DONE]" or payload.startswith(b'{"error"'):
            return b"data: " + payload + _END
        chunk = _chunk(payload)
        said = b"".join(self._choice(chunk, choice) for choice in chunk.choices)
        return said + (self._usage(chunk, chunk.usage) if chunk.usage else b"")

    def _choice(self, chunk: _ForeignChunk, choice: _ForeignChoice) -> bytes:
        if choice.finish_reason in _FAILED:
            message = f"the generation {_FAILED[choice.finish_reason]}"
            error = {"error": {"message": message, "type": "server_error", "code": 500}}
            return b"data: " + _encode(error) + _END
        said = b""
        if not self._chat:
            text = choice.text or ""
            if text or choice.finish_reason:
                body = {"text": text, "index": choice.index, "logprobs": choice.logprobs}
                said = self._written(chunk, [{**body, "finish_reason": choice.finish_reason}])
            return said
        if not self._begun:
            self._begun = True
            said = self._delta(chunk, choice.index, {"role": "assistant", "content": None})
        delta = {name: value for name, value in (choice.delta or {}).items() if name != "role" and value}
        if delta:
            said += self._delta(chunk, choice.index, delta)
        if choice.finish_reason:
            said += self._delta(chunk, choice.index, {}, choice.finish_reason)
        return said

    def _delta(self, chunk: _ForeignChunk, index: int, delta: dict[str, Any], finish: str | None = None) -> bytes:
        return self._written(chunk, [{"finish_reason": finish, "index": index, "delta": delta}])

    def _usage(self, chunk: _ForeignChunk, usage: dict[str, Any]) -> bytes:
        more: dict[str, Any] = {"usage": usage}
        # In this order: the timings are looked for at the end.
        if timings := _timings(usage):
            more["timings"] = timings
        return self._written(chunk, [], more)

    def _written(
        self, chunk: _ForeignChunk, choices: list[dict[str, Any]], more: dict[str, Any] | None = None
    ) -> bytes:
        fields: dict[str, Any] = {"choices": choices, "created": chunk.created, "id": chunk.id, "model": self._model}
        if chunk.system_fingerprint:
            fields["system_fingerprint"] = chunk.system_fingerprint
        fields["object"] = "chat.completion.chunk" if self._chat else "text_completion"
        return b"data: " + _encode(fields | (more or {})) + _END


def _timings(usage: dict[str, Any]) -> dict[str, float] | None:
    """Return an engine's durations in ``usage`` under llama-server's names; None where it has none."""
    seconds = [usage.get(name) for name in ("prefill_duration_ttft", "decoding_duration")]
    tokens = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    prompt, decode, read, said = (float(each) if isinstance(each, int | float) else 0.0 for each in (*seconds, *tokens))
    if not prompt and not decode:
        return None
    return {
        "cache_n": 0,
        "prompt_n": int(read),
        "prompt_ms": prompt * _MS_PER_S,
        "prompt_per_second": read / prompt if prompt else 0.0,
        "predicted_n": int(said),
        "predicted_ms": decode * _MS_PER_S,
        "predicted_per_second": said / decode if decode else 0.0,
    }
