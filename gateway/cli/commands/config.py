"""``lemonbus config``: shows every setting, its value and the origin of that."""

from __future__ import annotations

import json
import os
import sys

import click

from gateway.cli import output
from gateway.cli.options import json_option
from gateway.cli.settings import config_option, resolved, supervisor_environment
from protocol.config.fields import setting_fields
from protocol.config.model_sections import section_values
from protocol.config.resolver import masked


@click.command()
@config_option
@json_option("one JSON object")
def command(config: str, as_json: bool) -> None:
    """Show what `lemonbus serve` would run with, and where each value comes from. Keys are masked."""
    found = resolved(config=config)
    # Only the supervisor knows the options of recipes; it prints what is wrong with them itself.
    command = [sys.executable, "-m", "supervisor.lifecycle.startup"]
    code = os.spawnve(os.P_WAIT, sys.executable, command, {**os.environ, **supervisor_environment(found)})  # noqa: S606 - no shell
    if code:
        click.get_current_context().exit(code)
    values = {name: masked(name, getattr(found.settings, name)) for name in setting_fields()}
    values |= section_values(found.settings)
    if as_json:
        output.print_json(
            {
                name: {"value": value, "origin": found.origins[name].kind, "where": found.origins[name].name}
                for name, value in values.items()
            }
        )
    else:
        output.table(
            ("SETTING", "VALUE", "ORIGIN"),
            [(name, json.dumps(value, ensure_ascii=False), str(found.origins[name])) for name, value in values.items()],
        )
    for warning in found.warnings:
        click.echo(f"lemonbus: {warning}", err=True)
