"""``lemonbus pin``: keeps a loaded model from being evicted for another one."""

from __future__ import annotations

import click

from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.options import json_option, model_argument, server_option


def set_pinned(server: ApiClient, model: str, *, pinned: bool, as_json: bool) -> None:
    """Pin a loaded model or unpin it, and say so."""
    answer = server.call("POST", "/v1/pin", {"model_name": model, "pinned": pinned})
    if as_json:
        output.print_json(answer)
    else:
        name = output.plain(answer.get("model_name", model))
        click.echo(f"Pinned model: {name}" if pinned else f"Unpinned model: {name}")


@click.command()
@model_argument()
@json_option("the server's answer")
@server_option
def command(model: str, as_json: bool, server: ApiClient) -> None:
    """Never evict the loaded MODEL for another one, nor unload it because it is idle, until it is unloaded."""
    set_pinned(server, model, pinned=True, as_json=as_json)
