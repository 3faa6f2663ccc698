"""Answers of OpenAI's text completions: ids, log probabilities, echoed prompts, and the preview's ``text``. Pure.

Engines write chunks and answers nearly in OpenAI's form. The differences are changed here, in bytes where possible.
"""

from __future__ import annotations

import builtins
import codecs
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from gateway.api.common.inference.stream_writer import EventStreamWriter
from gateway.api.common.server_sent_events import unnamed_event
from protocol.wire.openai_chunks import payloads

_Decoder: Final = codecs.getincrementaldecoder("utf-8")


class TopToken(msgspec.Struct):
    """A token that might have been chosen."""

    token: str = ""
    logprob: float = 0.0
    bytes: list[int] | None = None

    @property
    def data(self) -> builtins.bytes:
        """Its bytes."""
        return self.token.encode() if self.bytes is None else builtins.bytes(self.bytes)


class Token(TopToken):
    """A token with its alternatives."""

    top_logprobs: list[TopToken] = []


class TextLogprobs:
    """Converts the log probabilities of one choice, piece by piece.

    ``text_offset`` counts characters from the beginning of its text.
    """

    def __init__(self, offset: int = 0) -> None:
        """``offset``: characters before the first token (an echoed prompt)."""
        self._offset = offset
        self._decoder = _Decoder("replace")

    def convert(self, content: Any) -> dict[str, Any]:
        """Return OpenAI's object for these tokens; raises ``msgspec.ValidationError`` for malformed ones."""
        return self.converted(msgspec.convert(content, list[Token]))

    def converted(self, tokens: Sequence[Token]) -> dict[str, Any]:
        """Return OpenAI's object for these tokens. A token that is not among its alternatives is added to them."""
        found: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for each in tokens:
            found["tokens"].append(_spelling(each))
            found["token_logprobs"].append(each.logprob)
            top: dict[str, float] = {}
            for candidate in (*each.top_logprobs, each) if each.top_logprobs else ():
                top.setdefault(_spelling(candidate), candidate.logprob)  # of several with the same text, the likeliest
            found["top_logprobs"].append(top)
            found["text_offset"].append(self._offset)
            # A character may be several tokens: it counts with the last of them.
            self._offset += len(self._decoder.decode(each.data))
        return found


def prompt_logprobs(tokens: Sequence[Token], text: str) -> dict[str, Any]:
    """Return OpenAI's object for the tokens of a prompt, whose first one has no probability.

    A tokenizer may put tokens and a space before ``text``; their offset is its beginning.
    """
    length = len(b"".join(token.data for token in tokens).decode(errors="replace"))
    found = TextLogprobs(len(text) - length).converted(tokens)
    found["text_offset"] = [max(0, offset) for offset in found["text_offset"]]
    for name in ("token_logprobs", "top_logprobs"):
        found[name][:1] = [None] * len(tokens[:1])
    return found


def _spelling(token: TopToken) -> str:
    """Return the token's text or, for a part of a character, its bytes in hexadecimal, as OpenAI does."""
    data = token.data
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


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
        return b"".join(unnamed_event(self._converted(payload)) for payload in payloads(events))

    def _converted(self, payload: bytes) -> bytes:
        chunk = _object(payload)
        for choice in chunk.get("choices", []):
            _convert_logprobs(choice, self._logprobs.setdefault(choice.get("index", 0), TextLogprobs()))
        return msgspec.json.encode(chunk)


def _convert_logprobs(choice: dict[str, Any], logprobs: TextLogprobs) -> None:
    found = choice.get("logprobs")
    if isinstance(found, dict) and isinstance(found.get("content"), list):
        choice["logprobs"] = logprobs.convert(found["content"])
