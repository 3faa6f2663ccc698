"""``lemonbus pull``: downloads a model and shows how far it is."""

from __future__ import annotations

import click

from gateway.cli.connect import json_option, model_argument, server_option
from gateway.cli.fetch import fetch
from gateway.cli.server import Server


@click.command()
@model_argument()
@json_option("every event as one line of JSON")
@server_option
def verb(model: str, as_json: bool, server: Server) -> None:
    """Download MODEL of the catalogue.

    A download that is already running is joined; one that broke off goes on where it was. Ctrl-C leaves the
    download to the server.
    """
    fetch(server, model, as_json)
    if not as_json:
        click.echo(f"Installed model: {model}")
