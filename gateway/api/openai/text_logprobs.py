"""Log probabilities of text completions in OpenAI's form: four lists of one length, made from llama-server's ``content``. Pure."""

from __future__ import annotations

import builtins
import codecs
from collections.abc import Sequence
from typing import Any, Final

import msgspec

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
