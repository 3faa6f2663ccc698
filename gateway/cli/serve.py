"""``lemonbus serve``: resolves the settings, then becomes the supervisor."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from gateway.cli.exits import USAGE, Trouble
from gateway.cli.settings import config_option, handed, resolved, setting_options
from protocol.configuration import guard
from protocol.failures import LemonbusError


@click.command(
    epilog="\b\nEvery flag is also a variable, LEMONBUS_PORT and so on, and a key of the configuration file."
)
@config_option
def verb(config: str, **flags: Any) -> None:
    """Start the server and stay in the foreground until SIGTERM or Ctrl-C.

    Flags win over the environment, the environment over the configuration file, the file over the defaults;
    `lemonbus config` shows what comes from where.
    """
    found = resolved(flags, config)
    try:
        guard(found.settings)
    except LemonbusError as problem:
        raise Trouble(str(problem), USAGE) from problem
    for note in found.notes:
        click.echo(f"lemonbus: {note}", err=True)
    os.environ.update(handed(found))
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "supervisor"])  # noqa: S606 - our own module, no shell


verb.params.extend(setting_options())
