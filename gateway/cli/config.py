"""``lemonbus config``: every setting, its value and where that comes from."""

from __future__ import annotations

import json
import os
import sys

import click

from gateway.cli import screen
from gateway.cli.connect import json_option
from gateway.cli.settings import config_option, handed, resolved
from protocol.configuration import shown
from protocol.fields import fields


@click.command()
@config_option
@json_option("one JSON object")
def verb(config: str, as_json: bool) -> None:
    """Show what `lemonbus serve` would run with, and where each value comes from. Keys are masked."""
    found = resolved(config=config)
    # What recipes take is the supervisor's to know. It says itself what is wrong.
    command = [sys.executable, "-m", "supervisor.opening"]
    code = os.spawnve(os.P_WAIT, sys.executable, command, {**os.environ, **handed(found)})  # noqa: S606 - no shell
    if code:
        click.get_current_context().exit(code)
    values = {name: shown(name, getattr(found.settings, name)) for name in fields()}
    if as_json:
        screen.print_json(
            {
                name: {"value": value, "origin": found.origins[name].kind, "where": found.origins[name].name}
                for name, value in values.items()
            }
        )
    else:
        screen.table(
            ("SETTING", "VALUE", "ORIGIN"),
            [(name, json.dumps(value, ensure_ascii=False), str(found.origins[name])) for name, value in values.items()],
        )
    for note in found.notes:
        click.echo(f"lemonbus: {note}", err=True)
