"""The command line ``lemonbus``: finds the command, runs it, and converts exceptions into messages and exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Final

import click

from gateway.cli import exit_codes, output
from protocol import RELEASE

COMMANDS: Final = {
    "serve": "Start the server.",
    "status": "Show what the server is doing.",
    "list": "List the models.",
    "show": "Show what is configured for a model.",
    "pull": "Download a model.",
    "delete": "Delete a model.",
    "load": "Load a model, or load it again with other options.",
    "unload": "Unload a model, or all of them.",
    "pin": "Keep a loaded model from being evicted.",
    "unpin": "Let a loaded model be evicted again.",
    "run": "Chat with a model.",
    "backends": "Show, install or remove the programs that models run on.",
    "keys": "Make, list or revoke API keys.",
    "params": "Show or set the sampling defaults.",
    "logs": "Show the logs of all processes.",
    "system-info": "Show the machine, its devices and what can be run on them.",
    "reload": "Read the configuration again, without a restart.",
    "upgrade": "Let the release that is installed now take over, without a restart.",
    "config": "Show every setting and where its value comes from.",
    "version": "Show the version.",
    "completion": "Print the completion script of a shell.",
}


class CommandGroup(click.Group):
    """A group that imports the module of a command only when that command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order in which a newcomer needs them."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"gateway.cli.commands.{cmd_name.replace('-', '_')}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for an unknown one suggest the nearest name."""
        import difflib  # noqa: PLC0415 - only after a mistyped command

        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f" Did you mean {close[0]}?" if close else " See lemonbus --help."
            ctx.fail(f"There is no command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _hand_down(context: click.Context, _parameter: click.Parameter, url: str | None) -> str | None:
    """Let the commands below inherit the address, in ``obj``."""
    context.obj = url
    return url


@click.group(
    cls=CommandGroup,
    epilog="\b\n" + exit_codes.EXIT_CODE_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option("--url", metavar="URL", callback=_hand_down, help="Address of the server, here or behind the command.")
@click.version_option(RELEASE, message="lemonbus %(version)s")
@click.pass_context
def cli(context: click.Context, url: str | None) -> None:
    """Serve many local models over one HTTP address, and look after them.

    The server's address is --url, LEMONBUS_URL, or that of this machine's configuration; the key is LEMONBUS_API_KEY,
    or LEMONBUS_ADMIN_API_KEY if there is one.
    """
    if url and context.invoked_subcommand == "serve":
        raise click.UsageError("serve starts a server and connects to none: leave out --url.")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        ended = cli.main(args=arguments, prog_name="lemonbus", standalone_mode=False)
    except click.ClickException as problem:
        problem.show()
        return problem.exit_code
    except exit_codes.CommandError as error:
        output.print_error(str(error))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed it.
        _discard_output()
        return exit_codes.FAILED
    except OSError as problem:
        _discard_output()
        where = f"{problem.filename}: " if problem.filename else ""
        output.print_error(f"{where}{problem.strerror or problem}")
        return exit_codes.FAILED
    return ended if isinstance(ended, int) else exit_codes.OK


def _discard_output() -> None:
    """Redirect standard output to nowhere: Python would try to write the rest at its end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
