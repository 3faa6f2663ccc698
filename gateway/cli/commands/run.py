"""``lemonbus run``: a chat on the terminal, or one answer for a script."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import click

from gateway.cli import output
from gateway.cli.api_client import ApiClient, stream_error
from gateway.cli.exit_codes import CommandError
from gateway.cli.options import json_option, model_argument, server_option
from gateway.cli.progress import ensure_downloaded
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


GREETING = "Chat with {model}. Ctrl-C stops an answer, /clear begins a new chat, Ctrl-D or /bye ends."


@click.command("run", short_help="Chat with a model.")
@model_argument()
@click.argument("prompt", required=False)
@click.option("--system", default="", metavar="TEXT", help="System prompt.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Length limit of an answer.")
@click.option("--temperature", type=click.FloatRange(min=0), help="Randomness; 0: always the likeliest token.")
@json_option("one JSON object with the whole answer")
@server_option
def command(
    model: str,
    prompt: str | None,
    system: str,
    max_tokens: int | None,
    temperature: float | None,
    as_json: bool,
    server: ApiClient,
) -> None:
    """Ask MODEL the PROMPT and print the answer as it comes.

    Without PROMPT, or with -, the prompt is read from standard input. On a terminal, this starts a conversation.
    """
    options: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature}
    chat = ChatSession(server, model, {key: value for key, value in options.items() if value is not None}, system)
    if prompt in (None, "-") and sys.stdin.isatty():
        ensure_downloaded(server, model)
        _converse(chat, model)
        return
    question = sys.stdin.read() if prompt in (None, "-") else prompt
    if not question or not question.strip():
        raise click.UsageError("The prompt is empty.")
    ensure_downloaded(server, model)
    if as_json:
        text = "".join(piece.text for piece in chat.ask(question) if not piece.is_reasoning)
        output.print_json({"model": model, "content": text, "finish_reason": chat.finish, "usage": chat.usage})
    else:
        _answer(chat, question)


def _answer(chat: ChatSession, question: str) -> None:
    """Print an answer as it comes. Reasoning is dimmed, and only printed on a terminal."""
    terminal = output.is_terminal()
    reasoning, begun = False, False
    try:
        with closing(chat.ask(question)) as pieces:
            for piece in pieces:
                if piece.is_reasoning and not terminal:
                    continue
                if reasoning and not piece.is_reasoning:
                    click.echo("\n")
                reasoning, begun = piece.is_reasoning, True
                text = output.plain(piece.text) if terminal else piece.text
                click.echo(click.style(text, dim=True) if reasoning else text, nl=False)
                sys.stdout.flush()
    finally:
        if begun:
            click.echo()
    if chat.finish == "length":
        click.echo("(The answer was cut at its length limit.)", err=True)


def _converse(chat: ChatSession, model: str) -> None:
    import readline  # noqa: F401, PLC0415 - gives input() its editing and history

    click.echo(GREETING.format(model=output.plain(model)), err=True)
    while True:
        try:
            question = input(">>> ").strip()
        except (EOFError, KeyboardInterrupt):
            click.echo()
            return
        if question == "/bye":
            return
        if question == "/clear":
            chat.forget()
        elif question:
            try:
                _answer(chat, question)
            except KeyboardInterrupt:
                click.echo("(Stopped.)", err=True)
            except CommandError as error:
                click.echo(f"lemonbus: {output.plain(str(error))}", err=True)
