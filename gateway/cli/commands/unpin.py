"""``lemonbus unpin``: lets a loaded model be evicted again."""

from __future__ import annotations

import click

from gateway.cli.api_client import ApiClient
from gateway.cli.options import json_option, model_argument, server_option
from gateway.cli.pins import set_pinned


@click.command()
@model_argument()
@json_option("the server's answer")
@server_option
def command(model: str, as_json: bool, server: ApiClient) -> None:
    """Let the loaded MODEL be evicted for another one, until it is unloaded; after that its configuration counts."""
    set_pinned(server, model, pinned=False, as_json=as_json)
