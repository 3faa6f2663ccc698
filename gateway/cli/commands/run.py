"""``lemonbus run``: a chat on the terminal, or one answer for a script."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.chat.conversation import Conversation, print_answer
from gateway.cli.chat.parameters import given_parameters, sampling_options
from gateway.cli.chat.session import ChatSession
from gateway.cli.options import json_option, model_argument, server_option
from gateway.cli.progress import ensure_downloaded


@click.command("run", short_help="Chat with a model.")
@model_argument()
@click.argument("prompt", required=False)
@click.option("--system", default="", metavar="TEXT", help="System prompt.")
@click.option(
    "--image",
    "images",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="An image that the prompt is about, for a model that sees. Repeatable.",
)
@sampling_options
@json_option("one JSON object with the whole answer")
@server_option
def command(
    model: str,
    prompt: str | None,
    system: str,
    images: tuple[Path, ...],
    as_json: bool,
    server: ApiClient,
    **parameters: Any,
) -> None:
    """Ask MODEL the PROMPT and print the answer as it comes.

    Without PROMPT, or with -, the prompt is read from standard input. On a terminal, this starts a conversation, in which
    /help shows the commands. It keeps what was typed in run_history.jsonl of $XDG_STATE_HOME/lemonbus.
    """
    chat = ChatSession(server, model, given_parameters(parameters), system)
    if prompt in (None, "-") and sys.stdin.isatty():
        if as_json:
            raise click.UsageError("--json needs a PROMPT.")
        ensure_downloaded(server, model)
        Conversation(chat, images).run()
        return
    question = sys.stdin.read() if prompt in (None, "-") else prompt
    if not question or not question.strip():
        raise click.UsageError("The prompt is empty.")
    ensure_downloaded(server, model)
    if as_json:
        text = "".join(piece.text for piece in chat.ask(question, images) if not piece.is_reasoning)
        output.print_json({"model": model, "content": text, "finish_reason": chat.finish, "usage": chat.usage})
    else:
        print_answer(chat, question, images)
