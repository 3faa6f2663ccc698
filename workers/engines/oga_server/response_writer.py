"""Answers of ONNX Runtime GenAI with llama-server's fields in llama-server's order, whole or as a stream. Pure."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

_encode: Final = msgspec.json.Encoder().encode
DONE: Final = b"data: [DONE]\n\n"
Logprobs = list[dict[str, Any]]
"""Log probabilities of tokens, as llama-server writes them."""


class GenerationCost(NamedTuple):
    """Tokens and seconds of one answer."""

    prompt: int
    """All tokens of the prompt, the cached ones included."""
    cached: int
    """Tokens of the prompt that were not computed again."""
    output: int
    prompt_s: float
    output_s: float

    def usage(self) -> dict[str, Any]:
        """Return OpenAI's `usage`."""
        return {
            "completion_tokens": self.output,
            "prompt_tokens": self.prompt,
            "total_tokens": self.output + self.prompt,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }

    def timings(self) -> dict[str, Any]:
        """Return llama-server's `timings`."""
        timings: dict[str, Any] = {"cache_n": self.cached}
        for name, count, seconds in (
            ("prompt", self.prompt - self.cached, self.prompt_s),
            ("predicted", self.output, self.output_s),
        ):
            timings |= {
                f"{name}_n": count,
                f"{name}_ms": round(seconds * 1000, 3),
                f"{name}_per_token_ms": round(seconds * 1000 / max(1, count), 3),
                f"{name}_per_second": round(count / max(seconds, 1e-6), 3),
            }
        return timings


class ResponseWriter:
    """Writes one answer."""

    def __init__(self, chat: bool, model: str, number: str, created: int, build: str) -> None:
        """``number`` names the answer; ``created`` in Unix seconds."""
        self._chat = chat
        kind = "chat.completion" if chat else "text_completion"
        self._about = {"created": created, "model": model, "system_fingerprint": build, "object": kind}
        self._number = f"{'chatcmpl' if chat else 'cmpl'}-{number}"
        chunk = f"{kind}.chunk" if chat else kind
        self._chunk = {**self._about, "object": chunk, "id": self._number}

    def _event(self, choices: list[dict[str, Any]], **rest: Any) -> bytes:
        return b"data: " + _encode({"choices": choices, **self._chunk, **rest}) + b"\n\n"

    def _choice(self, text: str, reason: str | None, logprobs: Logprobs | None = None) -> dict[str, Any]:
        shown = None if logprobs is None else {"content": logprobs}
        if self._chat:
            delta = {"content": text} if text or reason is None else {}
            choice = {"finish_reason": reason, "index": 0, "delta": delta}
            return choice if shown is None else {**choice, "logprobs": shown}
        return {"text": text, "index": 0, "logprobs": shown, "finish_reason": reason}

    def opening(self) -> bytes:
        """Return the first event of a chat's stream; nothing for a completion."""
        delta = {"role": "assistant", "content": None}
        return self._event([{"finish_reason": None, "index": 0, "delta": delta}]) if self._chat else b""

    def progress(self, total: int, cached: int, processed: int, milliseconds: int) -> bytes:
        """Return how many of the prompt's tokens are processed, the cached ones included."""
        progress = {"total": total, "cache": cached, "processed": processed, "time_ms": milliseconds}
        return self._event([self._choice("", None)], prompt_progress=progress)

    def piece(self, text: str, logprobs: Logprobs | None) -> bytes:
        """Return a piece of the answer; ``logprobs``: its tokens' log probabilities, None if they were not asked for."""
        return self._event([self._choice(text, None, logprobs)])

    def ending(self, reason: str, cost: GenerationCost, usage: bool, stopped_by: str | None = None) -> bytes:
        """Return the events that end a stream: the reason, the usage if it was asked for, and the end marker.

        ``stopped_by``: the stop word that ended the answer, empty if none did; None if the client did not ask for it.
        """
        more: dict[str, Any] = {} if stopped_by is None else {"__verbose": {"stopping_word": stopped_by}}
        if not usage:
            return self._event([self._choice("", reason)], **more, timings=cost.timings()) + DONE
        usage_event = self._event([], usage=cost.usage(), timings=cost.timings())
        return self._event([self._choice("", reason)], **more) + usage_event + DONE

    def whole(self, text: str, reason: str, cost: GenerationCost, logprobs: Logprobs | None) -> bytes:
        """Return the whole answer."""
        choice = self._choice(text, reason, logprobs)
        if self._chat:
            del choice["delta"]
            choice["message"] = {"role": "assistant", "content": text}
        return _encode(
            {
                "choices": [choice],
                **self._about,
                "usage": cost.usage(),
                "id": self._number,
                "timings": cost.timings(),
            }
        )


def error_event(body: dict[str, Any]) -> bytes:
    """Return an error as the last event of a stream."""
    return b"data: " + _encode({"error": body}) + b"\n\n"
