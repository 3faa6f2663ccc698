"""``lemonbus serve``: resolves the settings and becomes the keeper, which starts the supervisor."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from gateway.cli.exit_codes import USAGE, CommandError
from gateway.cli.settings import (
    command_line_environment,
    config_option,
    resolved,
    setting_options,
    supervisor_environment,
)
from protocol.config.resolver import require_key_beyond_loopback
from protocol.failures import LemonbusError


@click.command(
    "serve",
    short_help="Start the server.",
    epilog="\b\nEvery flag is also an environment variable, such as LEMONBUS_PORT, and a key of the configuration file.",
)
@config_option
def command(config: str, **flags: Any) -> None:
    """Start the server and stay in the foreground until SIGTERM or Ctrl-C.

    Flags take precedence over the environment, the environment over the configuration file, and the file over the
    defaults. `lemonbus config` shows where each value comes from.
    """
    found = resolved(flags, config)
    try:
        require_key_beyond_loopback(found.settings)
    except LemonbusError as problem:
        raise CommandError(str(problem), USAGE) from problem
    os.environ.update(supervisor_environment(found) | command_line_environment(flags, config))
    if sys.stdout is not None:  # it is None if the descriptor is closed
        sys.stdout.flush()
    # Without `site`: the keeper imports nothing that is installed, and stays small.
    os.execv(sys.executable, [sys.executable, "-S", "-m", "supervisor.keeper"])  # noqa: S606 - our own module, no shell


command.params.extend(setting_options())
