"""The required parts of each endpoint's whole answer: an engine's bytes are not trusted. Pure.

Fields that are not named here are passed on unread, after a check that they are JSON.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from protocol.failures import DECODE_ERRORS

_ERROR: Final = re.compile(rb'\s*\{\s*"error"\s*:')
_Text = Annotated[str, Meta(min_length=1)]


class _Message(msgspec.Struct):
    content: str | list[Any] | None = None
    tool_calls: list[Any] | None = None


class _ChatChoice(msgspec.Struct):
    finish_reason: _Text
    message: _Message


class _Chat(msgspec.Struct):
    choices: Annotated[list[_ChatChoice], Meta(min_length=1)]


class _TextChoice(msgspec.Struct):
    finish_reason: _Text
    text: str


class _Completion(msgspec.Struct):
    choices: Annotated[list[_TextChoice], Meta(min_length=1)]


class _NativeCompletion(msgspec.Struct):
    content: str
    stop: bool

    def __post_init__(self) -> None:
        if not self.stop:
            raise ValueError("the completion has not ended")


class _Vector(msgspec.Struct):
    embedding: Annotated[list[float], Meta(min_length=1)] | _Text


class _Embeddings(msgspec.Struct):
    data: Annotated[list[_Vector], Meta(min_length=1)]


class _NativeVectors(msgspec.Struct):
    embedding: Annotated[list[list[float] | float], Meta(min_length=1)]


class _Score(msgspec.Struct):
    index: int
    relevance_score: float


class _Scores(msgspec.Struct):
    results: list[_Score]


class _Picture(msgspec.Struct):
    b64_json: _Text


class _Pictures(msgspec.Struct):
    data: Annotated[list[_Picture], Meta(min_length=1)]


class _Tokens(msgspec.Struct):
    tokens: list[Any]


class _Content(msgspec.Struct):
    content: str


class _Prompt(msgspec.Struct):
    prompt: str


class _InputTokens(msgspec.Struct):
    input_tokens: int


_FORMS: Final[dict[str, Any]] = {
    "chat/completions": _Chat,
    "completions": _Completion,
    "completion": _NativeCompletion | Annotated[list[_NativeCompletion], Meta(min_length=1)],
    "infill": _NativeCompletion | Annotated[list[_NativeCompletion], Meta(min_length=1)],
    "embeddings": _Embeddings,
    "embedding": Annotated[list[_NativeVectors], Meta(min_length=1)],
    "rerank": _Scores,
    "images/generations": _Pictures,
    "images/edits": _Pictures,
    "tokenize": _Tokens,
    "detokenize": _Content,
    "apply-template": _Prompt,
    "chat/completions/input_tokens": _InputTokens,
}
_decoders: Final = {endpoint: msgspec.json.Decoder(form).decode for endpoint, form in _FORMS.items()}
_object: Final = msgspec.json.Decoder(dict[str, Any] | list[Any]).decode


def check_answer(endpoint: str, body: bytes) -> None:
    """Raise ValueError or RecursionError for a whole answer without the required parts of its endpoint."""
    if not body.isascii():
        body.decode()  # parts that are not read may contain bytes that are not text
    _decoders.get(endpoint, _object)(body)


def is_error_body(body: bytes) -> bool:
    """Return whether a response, or its beginning, is an error, whatever its status is: some engines report errors this way."""
    return _ERROR.match(body) is not None


def is_json(body: bytes) -> bool:
    """Return whether a response is a whole JSON value."""
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except DECODE_ERRORS:
        return False
    return True
