"""``lemonbus version``: shows the version of this program and of the protocol between its processes."""

from __future__ import annotations

import click

from protocol import RELEASE, VERSION


@click.command("version", short_help="Show the version.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(as_json: bool) -> None:
    """Show the version of this program and of the protocol between its processes."""
    if as_json:
        click.echo(f'{{"version":"{RELEASE}","protocol":{VERSION}}}')
    else:
        click.echo(f"lemonbus {RELEASE}, protocol {VERSION}")
