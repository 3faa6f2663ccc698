"""``lemonbus delete`` (``rm``): removes models and their files."""

from __future__ import annotations

import sys

import click

from gateway.api.lemonade.load import NamedModel
from gateway.api.lemonade.model_files import delete_model
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.options import for_each_model, json_option, model_argument, server_option


@click.command("delete", short_help="Delete models and their files.")
@model_argument(several=True)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option("the server's answer about each model")
@server_option
def command(models: tuple[str, ...], yes: bool, as_json: bool, server: ApiClient) -> None:
    """Unload each MODEL and remove its files, except those that another model uses.

    A model that a user registered is also unregistered. On a terminal, the command asks first.
    """
    if not yes and sys.stdin.isatty():
        names = ", ".join(map(output.plain, models))
        click.confirm(f"Delete {names} and {'its' if len(models) == 1 else 'their'} files?", abort=True, err=True)

    def delete(model: str) -> None:
        answer = server.ask(delete_model, NamedModel(model_name=model), seconds=None)
        if as_json:
            output.print_json(answer)
            return
        click.echo(output.plain(answer.message))
        if answer.kept_for:
            click.echo(f"Kept the files that are also used by {', '.join(answer.kept_for)}.", err=True)

    for_each_model(models, delete)
