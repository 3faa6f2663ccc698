"""``lemonbus run``: a chat in the terminal, or one answer for a script."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Any

import click

from gateway.cli import screen
from gateway.cli.chat import Chat
from gateway.cli.connect import json_option, model_argument, server_option
from gateway.cli.exits import Trouble
from gateway.cli.fetch import ensure
from gateway.cli.server import Server

GREETING = "Chat with {model}. Ctrl-C stops an answer, /clear begins anew, Ctrl-D or /bye leaves."


@click.command()
@model_argument()
@click.argument("prompt", required=False)
@click.option("--system", default="", metavar="TEXT", help="What the model shall be.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Longest answer.")
@click.option("--temperature", type=click.FloatRange(min=0), help="0: always the likeliest word.")
@json_option("one JSON object with the whole answer")
@server_option
def verb(
    model: str,
    prompt: str | None,
    system: str,
    max_tokens: int | None,
    temperature: float | None,
    as_json: bool,
    server: Server,
) -> None:
    """Ask MODEL the PROMPT and print the answer as it comes.

    Without PROMPT, or with -, the prompt is read from standard input; on a terminal that makes a conversation.
    """
    options: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature}
    chat = Chat(server, model, {key: value for key, value in options.items() if value is not None}, system)
    if prompt in (None, "-") and sys.stdin.isatty():
        ensure(server, model)
        _converse(chat, model)
        return
    question = sys.stdin.read() if prompt in (None, "-") else prompt
    if not question or not question.strip():
        raise click.UsageError("The prompt is empty.")
    ensure(server, model)
    if as_json:
        text = "".join(piece.text for piece in chat.ask(question) if not piece.thought)
        screen.print_json({"model": model, "content": text, "finish_reason": chat.finish, "usage": chat.usage})
    else:
        _answer(chat, question)


def _answer(chat: Chat, question: str) -> None:
    """Print an answer as it comes; thoughts, dimmed, only on a terminal."""
    terminal = screen.is_terminal()
    thinking, begun = False, False
    try:
        with closing(chat.ask(question)) as pieces:
            for piece in pieces:
                if piece.thought and not terminal:
                    continue
                if thinking and not piece.thought:
                    click.echo("\n")
                thinking, begun = piece.thought, True
                text = screen.plain(piece.text) if terminal else piece.text
                click.echo(click.style(text, dim=True) if thinking else text, nl=False)
                sys.stdout.flush()
    finally:
        if begun:
            click.echo()
    if chat.finish == "length":
        click.echo("(The answer was cut at its longest length.)", err=True)


def _converse(chat: Chat, model: str) -> None:
    import readline  # noqa: F401, PLC0415 - gives input() its editing and history

    click.echo(GREETING.format(model=screen.plain(model)), err=True)
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
            except Trouble as trouble:
                click.echo(f"lemonbus: {trouble}", err=True)
