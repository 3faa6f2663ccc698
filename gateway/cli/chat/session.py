"""A chat with a model: its messages, what is sent with each request, and the file that it can be kept in."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from gateway.cli.api_client import ApiClient, stream_error
from gateway.cli.chat.images import image_part
from gateway.cli.chat.parameters import PARAMETERS
from gateway.cli.exit_codes import USAGE, CommandError
from protocol.wire.openai_chunks import read_chunk

MAX_FILE_BYTES: Final = 256 * 1024 * 1024
"""Size limit of a kept chat, which has its images in it."""


def user_state_dir() -> Path:
    """Return where the commands of a user keep what they remember: ``$XDG_STATE_HOME/lemonbus``, or ``~/.local/state/lemonbus``."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "lemonbus"


class AnswerPiece(NamedTuple):
    """A piece of an answer."""

    text: str
    is_reasoning: bool = False
    """The model is reasoning and has not begun its answer."""


class SavedMessage(msgspec.Struct):
    """A message, in the form of OpenAI's chat requests. ``content``: a text, or parts with images."""

    role: Literal["user", "assistant"]
    content: str | list[dict[str, Any]]


class SavedChat(msgspec.Struct, kw_only=True):
    """The file of a chat."""

    version: Literal[1] = 1
    model: Annotated[str, Meta(min_length=1)]
    system: str = ""
    parameters: dict[str, Any] = {}
    messages: list[SavedMessage] = []


class ChatSession:
    """A conversation. After an answer, ``finish`` says why it ended, and ``usage`` counts its tokens."""

    def __init__(self, server: ApiClient, model: str, parameters: dict[str, Any], system: str = "") -> None:
        """Chat with ``model``; ``parameters`` and the ``system`` prompt are sent with every request."""
        self._server = server
        self.model, self.parameters, self.system = model, parameters, system
        self.messages: list[SavedMessage] = []
        self.finish = ""
        self.usage: dict[str, Any] = {}

    def forget(self) -> None:
        """Begin a new conversation."""
        self.messages = []

    def ask(self, prompt: str, images: Sequence[Path] = ()) -> Generator[AnswerPiece]:
        """Yield the answer. Closing the iterator stops the generation; the part so far is kept."""
        self.messages.append(SavedMessage("user", _content(prompt, images)))
        self.finish, self.usage = "", {}
        opening = [{"role": "system", "content": self.system}] if self.system else []
        request = {
            "model": self.model,
            **self.parameters,
            "messages": opening + msgspec.to_builtins(self.messages),
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
            self.messages.append(SavedMessage("assistant", answer))
        else:
            self.messages.pop()  # a question without an answer would confuse the next one

    def save(self, name: str) -> Path:
        """Write the chat into the file of this name, which is replaced as a whole; return its path."""
        chat = SavedChat(model=self.model, system=self.system, parameters=self.parameters, messages=self.messages)
        path = chat_file(name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, written = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # readable by this user alone
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(chat), indent=1))
                file.flush()
                os.fsync(file.fileno())
            Path(written).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(written).unlink()
            raise
        return path

    def load(self, name: str) -> None:
        """Go on with a chat that was saved, with its model; raises ``CommandError`` if its file cannot be used."""
        path = chat_file(name)
        try:
            with path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES)
            chat = msgspec.json.decode(content, type=SavedChat)
        except OSError as problem:
            raise CommandError(f"{path}: {problem.strerror}") from problem
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            raise CommandError(f"{path} is not a saved chat: {problem}") from problem
        if unknown := chat.parameters.keys() - PARAMETERS:
            raise CommandError(f"{path} has parameters that this release does not know: {', '.join(sorted(unknown))}")
        self.model, self.system, self.parameters, self.messages = (
            chat.model,
            chat.system,
            chat.parameters,
            chat.messages,
        )


def chat_file(name: str) -> Path:
    """Return the file of a saved chat: a path if the name has a slash, else a file among the user's chats."""
    if "/" in name:
        return Path(name).expanduser()
    if not re.fullmatch(r"[\w-][\w. -]{0,99}", name):
        raise CommandError(f"{name!r} cannot be the name of a chat: use letters, digits, dots and dashes", USAGE)
    return user_state_dir() / "chats" / f"{name}.json"


def _content(prompt: str, images: Sequence[Path]) -> str | list[dict[str, Any]]:
    if not images:
        return prompt
    text = [{"type": "text", "text": prompt}] if prompt else []
    return [*text, *map(image_part, images)]
