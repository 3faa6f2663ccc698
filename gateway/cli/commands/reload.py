"""``lemonbus reload``: makes the server read its configuration again, and shows the changes."""

from __future__ import annotations

from functools import partial

import click

from gateway.api.operator.reload import ReloadRequest, reload_configuration
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.exit_codes import UNREACHABLE, CommandError
from gateway.cli.options import given_url, json_option, server_option
from gateway.cli.setting_changes import print_changes


@click.command("reload", short_help="Read the configuration again, without a restart.")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@json_option("the server's answer")
@partial(server_option, reads_configuration=True)
def command(dry_run: bool, as_json: bool, server: ApiClient) -> None:
    """Read the configuration file again, and apply the changes.

    Everything else goes on: models stay loaded, and answers in progress are not interrupted. A wrong configuration is
    refused as a whole. Flags and variables of `lemonbus serve` stay as they were at the start.
    """
    try:
        answer = server.ask(reload_configuration, ReloadRequest(dry_run), seconds=None)
    except CommandError as problem:
        if problem.exit_code != UNREACHABLE or given_url(click.get_current_context()):
            raise
        hint = "If the configuration has a new address, name the former one: lemonbus reload --url URL"
        raise CommandError(f"{problem} {hint}", UNREACHABLE) from problem
    if as_json:
        output.print_json(answer)
        return
    for warning in answer.warnings:
        click.echo(f"lemonbus: {output.plain(warning)}", err=True)
    if answer.repeated:
        click.echo(
            "lemonbus: the supervisor was replaced meanwhile; the former one may have applied more changes, which its log lists",
            err=True,
        )
    if not answer.changes:
        click.echo("The configuration is in effect." if answer.repeated else "Nothing has changed.")
        return
    print_changes(answer)
    if dry_run:
        click.echo("\nNothing was applied.")
