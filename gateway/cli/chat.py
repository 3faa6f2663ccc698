"""One conversation with a model: asks, yields the answer as it comes, and remembers both."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any, NamedTuple

from gateway.cli.api_client import ApiClient, stream_error
from gateway.cli.exit_codes import CommandError


class AnswerPiece(NamedTuple):
    """A piece of an answer; ``thought``: the model only thinks it."""

    text: str
    is_reasoning: bool = False


class ChatSession:
    """A conversation. After an answer, ``finish`` says why it ended and ``usage`` what it cost."""

    def __init__(self, server: ApiClient, model: str, options: dict[str, Any], system: str = "") -> None:
        """Talk with ``model``; ``options`` are sent with every request."""
        self._server = server
        self._options = {"model": model, **options}
        self._opening = [{"role": "system", "content": system}] if system else []
        self._messages = list(self._opening)
        self.finish = ""
        self.usage: dict[str, Any] = {}

    def forget(self) -> None:
        """Begin anew."""
        self._messages = list(self._opening)

    def ask(self, prompt: str) -> Generator[AnswerPiece]:
        """Yield the answer. Closing the iterator stops the generation; what was answered so far is kept."""
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
                    for piece in self._pieces(json.loads(event.data)):
                        if not piece.is_reasoning:
                            answer.append(piece.text)
                        yield piece
            raise CommandError("the answer broke off: the stream ended without its end mark")
        finally:
            self._remember("".join(answer))

    def _pieces(self, chunk: Any) -> Iterator[AnswerPiece]:
        if error := stream_error(chunk):
            raise error
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk.get("choices") or []:
            delta = choice.get("delta") or {}
            if delta.get("reasoning_content"):
                yield AnswerPiece(delta["reasoning_content"], is_reasoning=True)
            if delta.get("content"):
                yield AnswerPiece(delta["content"])
            self.finish = choice.get("finish_reason") or self.finish

    def _remember(self, answer: str) -> None:
        if answer:
            self._messages.append({"role": "assistant", "content": answer})
        else:
            self._messages.pop()  # a question without an answer would confuse the next one
