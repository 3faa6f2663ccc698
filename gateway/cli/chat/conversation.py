"""A conversation on the terminal: questions and answers, and the commands that begin with a slash."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import click

from gateway.cli import output
from gateway.cli.chat.images import without_images
from gateway.cli.chat.line_editor import MARK, LineEditor
from gateway.cli.chat.parameters import PARAMETERS, parameter_value
from gateway.cli.chat.session import ChatSession, user_state_dir
from gateway.cli.exit_codes import CommandError

GREETING: Final = "Chat with {model}. Ctrl-C stops an answer, /help shows the commands, Ctrl-D or /bye ends."
_COMMAND: Final = re.compile(r"/([a-z?]+)(?:\s+(.*))?", re.DOTALL)
_HELP: Final = f"""\
/set system TEXT      another system prompt; without TEXT: none
/set NAME VALUE       a sampling parameter; without VALUE: the server's default
                      ({", ".join(PARAMETERS)})
/show                 the model, the system prompt, the parameters and the length of the chat
/clear                begin a new chat
/save NAME            keep the chat in a file; NAME may also be a path
/load NAME            go on with a chat that was kept, with its model
/bye                  end; Ctrl-D does the same

{MARK} begins and ends a message of several lines. Pasted text is one message.
The path of an image file in a message (drop the file on the terminal) attaches the image."""


def print_answer(chat: ChatSession, question: str, images: Sequence[Path] = ()) -> None:
    """Print an answer as it comes. Reasoning is dimmed, and only printed on a terminal."""
    terminal = output.is_terminal()
    reasoning, begun = False, False
    try:
        with closing(chat.ask(question, images)) as pieces:
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


class Conversation:
    """Asks what a person types, until they end it."""

    def __init__(self, chat: ChatSession, images: Sequence[Path] = ()) -> None:
        """Go on with ``chat``; ``images`` belong to the first question."""
        self._chat, self._images = chat, list(images)
        self._ended = False
        self._commands: dict[str, Callable[[str], None]] = {
            "help": self._help,
            "?": self._help,
            "set": self._set,
            "show": self._show,
            "clear": self._clear,
            "save": self._save,
            "load": self._load,
            "bye": self._end,
            "exit": self._end,
            "quit": self._end,
        }

    def run(self) -> None:
        """Read, ask and print until the end. Errors and Ctrl-C end an answer, not the conversation."""
        editor = LineEditor(user_state_dir() / "run_history.jsonl")
        click.echo(GREETING.format(model=output.plain(self._chat.model)), err=True)
        while not self._ended:
            try:
                message = editor.read()
            except EOFError:
                click.echo()
                return
            except KeyboardInterrupt:
                click.echo("\n(Ctrl-D or /bye ends.)", err=True)
                continue
            try:
                self._take(message)
            except KeyboardInterrupt:
                click.echo("(Stopped.)", err=True)
            except (CommandError, OSError) as error:
                output.print_error(str(error))

    def _take(self, message: str) -> None:
        """Carry out a command, or ask. A path is not a command: it has a second slash or a dot."""
        command = _COMMAND.fullmatch(message)
        if command is not None:
            carry_out = self._commands.get(command[1])
            if carry_out is None:
                raise CommandError(f"there is no command /{command[1]}; /help shows them")
            carry_out((command[2] or "").strip())
        elif message:
            question, dropped = without_images(message)
            for path in dropped:
                click.echo(f"(With the image {output.plain(path.name)}.)", err=True)
            images, self._images = [*self._images, *dropped], []
            print_answer(self._chat, question, images)

    def _help(self, _: str) -> None:
        click.echo(_HELP, err=True)

    def _end(self, _: str) -> None:
        self._ended = True

    def _clear(self, _: str) -> None:
        self._chat.forget()

    def _set(self, words: str) -> None:
        """Also takes Ollama's form: ``/set parameter NAME VALUE``."""
        name, _, value = words.removeprefix("parameter ").strip().partition(" ")
        name, value = name.replace("-", "_"), value.strip()
        if not name:
            raise CommandError("what is to be set? /help shows the names")
        if name == "system":
            self._chat.system = value.removeprefix(MARK).removesuffix(MARK).strip()
            return
        if name in PARAMETERS and not value:
            self._chat.parameters.pop(name, None)
        else:
            self._chat.parameters[name] = parameter_value(name, value)

    def _show(self, _: str) -> None:
        chat = self._chat
        facts = {"model": chat.model, "system": chat.system or "-"}
        facts |= {name: output.json_text(value) for name, value in chat.parameters.items()}
        facts["messages"] = str(len(chat.messages))
        if chat.usage:
            facts["tokens"] = f"{chat.usage.get('total_tokens', '?')} in the last request and its answer"
        for name, value in facts.items():
            click.echo(f"{name:<16}{output.plain(value)}", err=True)

    def _save(self, name: str) -> None:
        if not name:
            raise CommandError("under which name? /save NAME")
        click.echo(f"(Saved: {output.plain(str(self._chat.save(name)))})", err=True)

    def _load(self, name: str) -> None:
        if not name:
            raise CommandError("which chat? /load NAME")
        self._chat.load(name)
        click.echo(
            f"(A chat of {len(self._chat.messages)} messages with {output.plain(self._chat.model)}.)",
            err=True,
        )
