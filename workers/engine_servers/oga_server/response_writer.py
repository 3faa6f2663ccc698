"""Answers of ONNX Runtime GenAI with llama-server's fields in llama-server's order, whole or streamed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

_encode: Final = msgspec.json.Encoder().encode
DONE: Final = b"data: [DONE]\n\n"
Logprobs = list[dict[str, Any]]
"""Log probabilities of tokens, as llama-server writes them."""


class GenerationCost(NamedTuple):
    """Tokens and seconds of one choice. Choices of one prompt share its computation, and each reports it."""

    prompt: int
    """All tokens of the prompt, including cached ones."""
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


class ToolCall(NamedTuple):
    """A call of a tool; the arguments are JSON."""

    id: str
    name: str
    arguments: str


class WholeChoice(NamedTuple):
    """One choice of an answer that is sent at its end."""

    text: str
    calls: Sequence[ToolCall]
    reason: str
    logprobs: Logprobs | None
    """None if they were not requested."""
    cost: GenerationCost


class ResponseWriter:
    """Writes one answer. ``index`` is the number of one of its choices."""

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

    def prompt_logprobs(self, prompts: Sequence[Logprobs]) -> bytes:
        """Return the log probabilities of each prompt's tokens, before any choice."""
        return self._event([self._choice(0, "", None)], prompt_logprobs=prompts)

    def _choice(self, index: int, text: str, reason: str | None, logprobs: Logprobs | None = None) -> dict[str, Any]:
        if self._chat:
            return self._delta(index, {"content": text} if text or reason is None else {}, reason, logprobs)
        shown = None if logprobs is None else {"content": logprobs}
        return {"text": text, "index": index, "logprobs": shown, "finish_reason": reason}

    def _delta(
        self, index: int, delta: dict[str, Any], reason: str | None = None, logprobs: Logprobs | None = None
    ) -> dict[str, Any]:
        choice = {"finish_reason": reason, "index": index, "delta": delta}
        return choice if logprobs is None else {**choice, "logprobs": {"content": logprobs}}

    def opening(self, index: int) -> bytes:
        """Return the first event of a choice of a chat's stream; nothing for a completion."""
        return self._event([self._delta(index, {"role": "assistant", "content": None})]) if self._chat else b""

    def progress(self, index: int, total: int, cached: int, processed: int, milliseconds: int) -> bytes:
        """Return how many of the prompt's tokens are processed, including cached ones."""
        progress = {"total": total, "cache": cached, "processed": processed, "time_ms": milliseconds}
        return self._event([self._choice(index, "", None)], prompt_progress=progress)

    def piece(self, index: int, text: str, logprobs: Logprobs | None) -> bytes:
        """Return a piece of the answer.

        ``logprobs``: its tokens' log probabilities; None if they were not requested.
        """
        return self._event([self._choice(index, text, None, logprobs)])

    def call_start(self, index: int, number: int, call: ToolCall) -> bytes:
        """Return the beginning of a tool call, the choice's ``number``-th."""
        function = {"name": call.name, "arguments": call.arguments}
        started = {"index": number, "id": call.id, "type": "function", "function": function}
        return self._event([self._delta(index, {"tool_calls": [started]})])

    def call_arguments(self, index: int, number: int, text: str) -> bytes:
        """Return a piece of a tool call's arguments."""
        return self._event([self._delta(index, {"tool_calls": [{"index": number, "function": {"arguments": text}}]})])

    def ending(
        self, index: int, reason: str, cost: GenerationCost, usage: bool, stopped_by: str | None = None
    ) -> bytes:
        """Return the events that end a choice: the reason, and the usage if requested.

        ``stopped_by``: the stop word that ended the answer, empty if none did; None if the client did not ask for it.
        """
        more: dict[str, Any] = {} if stopped_by is None else {"__verbose": {"stopping_word": stopped_by}}
        if not usage:
            return self._event([self._choice(index, "", reason)], **more, timings=cost.timings())
        usage_event = self._event([], usage=cost.usage(), timings=cost.timings())
        return self._event([self._choice(index, "", reason)], **more) + usage_event

    def whole(
        self, choices: Sequence[WholeChoice], choices_of_prompt: int, scored: Sequence[Logprobs] | None = None
    ) -> bytes:
        """Return the whole answer. Each run of ``choices_of_prompt`` choices has the same prompt.

        ``scored``: the log probabilities of each prompt's tokens; None if they were not requested.
        """
        prompts = [choice.cost for choice in choices[::choices_of_prompt]]
        total = GenerationCost(
            sum(cost.prompt for cost in prompts),
            sum(cost.cached for cost in prompts),
            sum(choice.cost.output for choice in choices),
            sum(cost.prompt_s for cost in prompts),
            sum(choice.cost.output_s for choice in choices),
        )
        return _encode(
            {
                "choices": [self._whole_choice(index, choice) for index, choice in enumerate(choices)],
                **self._about,
                **({} if scored is None else {"prompt_logprobs": scored}),
                "usage": total.usage(),
                "id": self._number,
                "timings": total.timings(),
            }
        )

    def _whole_choice(self, index: int, whole: WholeChoice) -> dict[str, Any]:
        choice = self._choice(index, whole.text, whole.reason, whole.logprobs)
        if self._chat:
            del choice["delta"]
            choice["message"] = {"role": "assistant", "content": whole.text}
            if whole.calls:
                choice["message"]["tool_calls"] = [
                    {"type": "function", "function": {"name": call.name, "arguments": call.arguments}, "id": call.id}
                    for call in whole.calls
                ]
        return choice


def error_event(body: dict[str, Any]) -> bytes:
    """Return an error as the last event of a stream."""
    return b"data: " + _encode({"error": body}) + b"\n\n"
