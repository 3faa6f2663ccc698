"""One conversation with a model: asks, yields the answer as it comes, and keeps both for the next request."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any, NamedTuple

from gateway.cli.api_client import ApiClient, stream_error
from gateway.cli.exit_codes import CommandError
from protocol.wire.openai_chunks import read_chunk


class AnswerPiece(NamedTuple):
    """A piece of an answer."""

    text: str
    is_reasoning: bool = False
    """The model is reasoning and has not begun its answer."""


class ChatSession:
    """A conversation. After an answer, ``finish`` says why it ended, and ``usage`` counts its tokens."""

    def __init__(self, server: ApiClient, model: str, options: dict[str, Any], system: str = "") -> None:
        """Chat with ``model``; ``options`` are sent with every request."""
        self._server = server
        self._options = {"model": model, **options}
        self._opening = [{"role": "system", "content": system}] if system else []
        self._messages = list(self._opening)
        self.finish = ""
        self.usage: dict[str, Any] = {}

    def forget(self) -> None:
        """Begin a new conversation."""
        self._messages = list(self._opening)

    def ask(self, prompt: str) -> Generator[AnswerPiece]:
        """Yield the answer. Closing the iterator stops the generation; the part so far is kept."""
        self._messages.append({"role": "user", "content": prompt})
        self.finish, self.usage = "", {}
        request = {
            **self._options,
            "messages": self._messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        answer: list[str] = []
        try:
            with closing(self._server.stream("/v1/chat/completions", request)) as events:
                for event in events:
                    if event.data == "[DONE]":
                        return
                    for piece in self._pieces(event.data):
                        if not piece.is_reasoning:
                            answer.append(piece.text)
                        yield piece
            raise CommandError("the answer broke off: the stream ended without its end mark")
        finally:
            self._remember("".join(answer))

    def _pieces(self, data: str) -> Iterator[AnswerPiece]:
        if error := stream_error(json.loads(data)):
            raise error
        chunk = read_chunk(data)
        if bytes(chunk.usage):
            self.usage = json.loads(bytes(chunk.usage)) or self.usage
        for choice in chunk.choices:
            if choice.delta is not None and choice.delta.reasoning_content:
                yield AnswerPiece(choice.delta.reasoning_content, is_reasoning=True)
            if choice.content:
                yield AnswerPiece(choice.content)
            self.finish = choice.finish_reason or self.finish

    def _remember(self, answer: str) -> None:
        if answer:
            self._messages.append({"role": "assistant", "content": answer})
        else:
            self._messages.pop()  # a question without an answer would confuse the next one
