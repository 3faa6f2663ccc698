"""``lemonbus pin``: keeps a loaded model from being evicted for another one."""

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
    """Never evict the loaded MODEL for another one, nor unload it because it is idle, until it is unloaded."""
    set_pinned(server, model, pinned=True, as_json=as_json)
