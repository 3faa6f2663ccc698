"""``lemonbus pin`` and ``unpin``: keep a loaded model from being evicted for another one, or let it be evicted again."""

from __future__ import annotations

import click

from gateway.api.lemonade.load import PinRequest, pin_model
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.options import json_option, model_argument, server_option


@click.command(short_help="Protect a loaded model from eviction.")
@model_argument()
@json_option("the server's answer")
@server_option
def pin(model: str, as_json: bool, server: ApiClient) -> None:
    """Protect the loaded MODEL from eviction and from its idle time, until it is unloaded."""
    _pin(server, PinRequest(model_name=model, pinned=True), as_json)


@click.command(short_help="Allow a loaded model to be evicted again.")
@model_argument()
@json_option("the server's answer")
@server_option
def unpin(model: str, as_json: bool, server: ApiClient) -> None:
    """Let the loaded MODEL be evicted again, until it is unloaded; after that, its configuration applies."""
    _pin(server, PinRequest(model_name=model, pinned=False), as_json)


def _pin(server: ApiClient, request: PinRequest, as_json: bool) -> None:
    answer = server.ask(pin_model, request)
    if as_json:
        output.print_json(answer)
    else:
        click.echo(f"{'Pinned' if answer.pinned else 'Unpinned'} model: {output.plain(answer.model_name)}")
