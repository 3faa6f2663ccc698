"""``lemonbus delete``: removes a model and its files."""

from __future__ import annotations

import sys

import click

from gateway.api.lemonade.load import NamedModel
from gateway.api.lemonade.model_files import delete_model
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.options import json_option, model_argument, server_option


@click.command("delete", short_help="Delete a model.")
@model_argument()
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option("the server's answer")
@server_option
def command(model: str, yes: bool, as_json: bool, server: ApiClient) -> None:
    """Unload MODEL and remove its files, except those that another model uses.

    A model that a user registered is also unregistered. On a terminal, the command asks first.
    """
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {output.plain(model)} and its files?", abort=True, err=True)
    answer = server.ask(delete_model, NamedModel(model_name=model), seconds=None)
    if as_json:
        output.print_json(answer)
        return
    click.echo(output.plain(answer.message))
    if answer.kept_for:
        click.echo(f"Kept the files that are also used by {', '.join(answer.kept_for)}.", err=True)
