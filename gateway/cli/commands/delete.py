"""``lemonbus delete`` (``rm``): removes models and their files."""

from __future__ import annotations

import sys

import click

from gateway.api.lemonade.model_files import DeleteRequest, delete_model
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.options import for_each_model, json_option, model_argument, server_option


@click.command("delete", short_help="Delete models and their files.")
@model_argument(several=True)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show which files would be removed.")
@json_option("the server's answer about each model")
@server_option
def command(models: tuple[str, ...], yes: bool, dry_run: bool, as_json: bool, server: ApiClient) -> None:
    """Unload each MODEL and remove its files, except those that another model uses.

    A model that a user registered is also unregistered. On a terminal, the command asks first.
    """
    if not yes and not dry_run and sys.stdin.isatty():
        names = ", ".join(map(output.plain, models))
        click.confirm(f"Delete {names} and {'its' if len(models) == 1 else 'their'} files?", abort=True, err=True)

    def delete(model: str) -> None:
        answer = server.ask(delete_model, DeleteRequest(model_name=model, dry_run=dry_run or None), seconds=None)
        if as_json:
            output.print_json(answer)
            return
        click.echo(output.plain(answer.message))
        if answer.removed:
            total = output.size(sum(file.size for file in answer.removed))
            click.echo(f"It would free at most {total}:")
            output.table(("SIZE", "FILE"), [(output.size(file.size), file.path) for file in answer.removed])
        if answer.kept_for:
            click.echo(f"Kept the files that are also used by {', '.join(answer.kept_for)}.", err=True)

    for_each_model(models, delete)
