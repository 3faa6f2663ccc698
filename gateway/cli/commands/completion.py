"""``lemonbus completion``: prints the script that makes a shell complete commands, flags and models."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from gateway.cli.exit_codes import CommandError


@click.command("completion", short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash:  eval "$(lemonbus completion bash)"    in ~/.bashrc
    zsh:   eval "$(lemonbus completion zsh)"     in ~/.zshrc
    fish:  lemonbus completion fish | source     in ~/.config/fish/config.fish
    """  # noqa: D301 - the escape is click's mark for lines that stay as they are
    kind = get_completion_class(shell)
    if kind is None:
        raise CommandError(f"no completion for {shell}")
    click.echo(kind(context.find_root().command, {}, "lemonbus", "_LEMONBUS_COMPLETE").source())
