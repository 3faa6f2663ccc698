"""Answers of OpenAI's text completions: ids, log probabilities, echoed prompts, and the preview's ``text``. Pure.

Engines write chunks and answers nearly in OpenAI's form. The differences are changed here, in bytes where possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from gateway.api.openai.event_stream import EventStreamWriter
from gateway.api.openai.text_logprobs import TextLogprobs
from protocol.wire.openai_chunks import payloads

_CHAT_ID: Final = b'"id":"chatcmpl-'
_ID: Final = b'"id":"cmpl-'
_LOGPROBS: Final = b'"logprobs":{'


class _TextChoice(msgspec.Struct):
    text: str = ""


class _TextCompletion(msgspec.Struct):
    choices: list[_TextChoice] = []


class EchoedPrompt(NamedTuple):
    """The prompt at the beginning of an answer."""

    text: str
    logprobs: dict[str, list[Any]] | None = None
    """Log probabilities of its tokens in OpenAI's form, if they are wanted."""


_NO_PROMPT: Final = EchoedPrompt("")
_text_completion: Final = msgspec.json.Decoder(_TextCompletion).decode
_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


def text_completion(
    body: bytes, echoed: Sequence[EchoedPrompt] | None = None, n: int = 1, *, generates: bool = True
) -> bytes:
    """Return a completion with ``text`` at its top level, and its choices after their prompts of ``echoed``.

    ``n``: choices of each prompt. ``generates``: the choices contain generated text, not only their prompts.
    """
    # Inside a JSON string every quote has a backslash before it, so these bytes are a key.
    body = body.replace(_CHAT_ID, _ID)
    if echoed is not None or _LOGPROBS in body:
        document = _object(body)
        document.pop("prompt_logprobs", None)
        usage = document.get("usage") or {}
        for position, choice in enumerate(document.get("choices", [])):
            prompt = echoed[min(choice.get("index", position) // n, len(echoed) - 1)] if echoed else _NO_PROMPT
            _convert_logprobs(choice, TextLogprobs(len(prompt.text)))
            _put_prompt(choice, prompt, generates=generates and usage.get("completion_tokens") != 0)
        if not generates:
            document["usage"] = {**usage, "completion_tokens": 0, "total_tokens": usage.get("prompt_tokens", 0)}
        body = msgspec.json.encode(document)
    choices = _text_completion(body).choices
    first = msgspec.json.encode(choices[0].text if choices else "")
    return body.rstrip()[:-1] + b',"text":' + first + b"}"


def _put_prompt(choice: dict[str, Any], prompt: EchoedPrompt, *, generates: bool) -> None:
    generated = choice.get("text", "") if generates else ""
    choice["text"] = prompt.text + generated
    if not generates:
        choice |= {"finish_reason": "length", "logprobs": prompt.logprobs}
    elif prompt.logprobs is not None:
        # llama-server leaves out a token that ends within a character. A client that takes one token off the end
        # expects one.
        unknown: dict[str, list[Any]] = {
            "tokens": [generated],
            "token_logprobs": [None],
            "top_logprobs": [None],
            "text_offset": [len(prompt.text)],
        }
        scores = choice.get("logprobs") or unknown
        choice["logprobs"] = {name: [*values, *scores[name]] for name, values in prompt.logprobs.items()}


class TextStreamWriter(EventStreamWriter):
    """Passes events on, and rewrites those with log probabilities."""

    def __init__(self) -> None:
        """Nothing has been written."""
        self._logprobs: dict[int, TextLogprobs] = {}

    def events(self, events: bytes) -> bytes:
        """Return the events for the client."""
        events = events.replace(_CHAT_ID, _ID)
        if _LOGPROBS not in events:
            return events
        return b"".join(b"data: %b\n\n" % self._converted(payload) for payload in payloads(events))

    def _converted(self, payload: bytes) -> bytes:
        chunk = _object(payload)
        for choice in chunk.get("choices", []):
            _convert_logprobs(choice, self._logprobs.setdefault(choice.get("index", 0), TextLogprobs()))
        return msgspec.json.encode(chunk)


def _convert_logprobs(choice: dict[str, Any], logprobs: TextLogprobs) -> None:
    found = choice.get("logprobs")
    if isinstance(found, dict) and isinstance(found.get("content"), list):
        choice["logprobs"] = logprobs.convert(found["content"])
