"""``lemonbus unload``: unloads one model, or all."""

from __future__ import annotations

from http import HTTPStatus

import click

from gateway.cli import output
from gateway.cli.api_client import MODELS_HINT, ApiClient
from gateway.cli.exit_codes import CommandError
from gateway.cli.options import json_option, model_argument, server_option


@click.command()
@model_argument(required=False)
@click.option("--all", "-a", "all_models", is_flag=True, help="Unload every model.")
@json_option("the server's answer")
@server_option
def command(model: str, all_models: bool, as_json: bool, server: ApiClient) -> None:
    """Unload MODEL once its running requests have ended, or all models with --all."""
    if bool(model) == all_models:
        raise click.UsageError("Name a MODEL, or use --all.")
    try:
        answer = server.call("POST", "/v1/unload", {"model_name": model} if model else {}, seconds=None)
    except CommandError as problem:
        if problem.status != HTTPStatus.NOT_FOUND:
            raise
        # The API also says "not found" of a model that is known but not loaded.
        message = str(problem).removesuffix(MODELS_HINT)
        raise CommandError(f"{message}; `lemonbus status` shows the loaded ones", status=problem.status) from problem
    if as_json:
        output.print_json(answer)
    else:
        click.echo(answer.get("message", "Unloaded"))
