"""Log probabilities of text completions in OpenAI's form: four lists of one length, made from llama-server's ``content``. Pure."""

from __future__ import annotations

import codecs
from typing import Any, Final

import msgspec

_Decoder: Final = codecs.getincrementaldecoder("utf-8")


class _TopToken(msgspec.Struct):
    token: str = ""
    logprob: float = 0.0
    bytes: list[int] | None = None


class _Token(_TopToken):
    top_logprobs: list[_TopToken] = []


class TextLogprobs:
    """Converts those of one choice, piece by piece. ``text_offset`` counts characters from the beginning of the choice's text."""

    def __init__(self, offset: int = 0) -> None:
        """``offset``: characters before the first token (an echoed prompt)."""
        self._offset = offset
        self._decoder = _Decoder("replace")

    def convert(self, content: Any) -> dict[str, Any]:
        """Return OpenAI's object for these tokens; raises ``msgspec.ValidationError`` for what are none."""
        tokens = msgspec.convert(content, list[_Token])
        found: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for each in tokens:
            found["tokens"].append(_spelling(each))
            found["token_logprobs"].append(each.logprob)
            found["top_logprobs"].append({_spelling(top): top.logprob for top in each.top_logprobs})
            found["text_offset"].append(self._offset)
            # A character may be several tokens: it counts with the last of them.
            self._offset += len(self._decoder.decode(_bytes(each)))
        return found


def _bytes(token: _TopToken) -> bytes:
    return token.token.encode() if token.bytes is None else bytes(token.bytes)


def _spelling(token: _TopToken) -> str:
    """Return the token's text; of a part of a character its bytes in hexadecimal, as OpenAI does."""
    data = _bytes(token)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
