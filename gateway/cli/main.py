"""The command line ``lemonbus``: finds the command, runs it, and converts exceptions into messages and exit codes."""

from __future__ import annotations

import importlib
import keyword
import os
import re
import sys
from pathlib import Path
from typing import Any, Final

import click

from gateway.cli import exit_codes, output
from protocol import RELEASE, VERSION

_COMMANDS: Final = Path(__file__).parent / "commands"
OTHER_NAMES: Final = {"ls": "list", "rm": "delete", "stop": "unload"}
"""Name that people know from similar programs → the command that it is another name of."""
_SUGGESTED: Final = {
    "chat": "run",
    "kill": "stop",
    "models": "list",
    "remove": "rm",
    "restart": "upgrade or reload",
    "rmi": "rm",
    "start": "serve",
}
"""Word of similar programs → the command to suggest for it."""


class CommandGroup(click.Group):
    """A group that imports the file of a command only when that command runs, and all of them to list them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands. Each is the name of a file, of the command that undoes it, or another name of one."""
        del ctx
        files = [path.stem.rstrip("_").replace("_", "-") for path in _COMMANDS.glob("[a-z]*.py")]
        return sorted([*OTHER_NAMES, *(name for file in files for name in (file, f"un{file}") if _command(file, name))])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's file."""
        del ctx
        cmd_name = OTHER_NAMES.get(cmd_name, cmd_name)
        for file in (cmd_name, cmd_name.removeprefix("un")):
            if re.fullmatch("[a-z-]+", file) and (_COMMANDS / f"{_module_name(file)}.py").exists():
                return _command(file, cmd_name)
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for an unknown one suggest the nearest name."""
        import difflib  # noqa: PLC0415 - only after a mistyped command

        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            close = (
                [_SUGGESTED[args[0]]]
                if args[0] in _SUGGESTED
                else difflib.get_close_matches(args[0], self.list_commands(ctx), 1)
            )
            hint = f" Did you mean {close[0]}?" if close else " See lemonbus --help."
            ctx.fail(f"There is no command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List each command once, with its other names."""
        named = {
            name: ", ".join([name, *(other for other, of in OTHER_NAMES.items() if of == name)])
            for name in self.list_commands(ctx)
            if name not in OTHER_NAMES
        }
        limit = formatter.width - 6 - max(map(len, named.values()))
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (shown, each.get_short_help_str(limit))
                    for name, shown in named.items()
                    if (each := self.get_command(ctx, name))
                ]
            )

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and print its error in the form that was asked for."""
        try:
            return super().invoke(ctx)
        except exit_codes.CommandError as error:
            output.print_failure(error, ctx)
            ctx.exit(error.exit_code)


def _module_name(file: str) -> str:
    """Return the name of a command's module: a word of Python, such as ``import``, gets an underscore."""
    return f"{file.replace('-', '_')}{'_' * keyword.iskeyword(file)}"


def _command(file: str, name: str) -> click.Command | None:
    module = importlib.import_module(f"gateway.cli.commands.{_module_name(file)}")
    return next((each for each in vars(module).values() if isinstance(each, click.Command) and each.name == name), None)


def _hand_down(context: click.Context, _parameter: click.Parameter, url: str | None) -> str | None:
    """Pass the address to the commands below, in ``obj``."""
    context.obj = url
    return url


@click.group(
    cls=CommandGroup,
    epilog="\b\n" + exit_codes.EXIT_CODE_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option("--url", metavar="URL", callback=_hand_down, help="Address of the server, before or after the command.")
@click.version_option(RELEASE, message=f"lemonbus %(version)s, protocol {VERSION}")
@click.pass_context
def cli(context: click.Context, url: str | None) -> None:
    """Serve many local models over one HTTP address, and look after them.

    The server's address is --url, LEMONBUS_URL, or that of this machine's configuration. The key is
    LEMONBUS_ADMIN_API_KEY if it is set, else LEMONBUS_API_KEY.
    """
    if url and context.invoked_subcommand == "serve":
        raise click.UsageError("serve starts a server and does not connect to one: leave out --url.")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        ended = cli.main(args=arguments, prog_name="lemonbus", standalone_mode=False)
    except click.ClickException as problem:
        problem.show()
        return problem.exit_code
    except exit_codes.CommandError as error:  # of a completion
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
    """Redirect standard output to nowhere: otherwise Python would try to write the rest at its end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
