"""``lemonbus upgrade``: lets the release that is installed now take over from the one that runs."""

from __future__ import annotations

import click

from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.options import json_option, server_option


@click.command()
@json_option("the server's answer")
@server_option
def command(as_json: bool, server: ApiClient) -> None:
    """Let the release that is installed now take over, after `pip install -U`.

    Models stay loaded, and answers that are being written are not interrupted. A release that cannot start changes
    nothing: the one that runs goes on.
    """
    answer = server.call("POST", "/internal/upgrade", {}, seconds=None)
    if as_json:
        output.print_json(answer)
        return
    click.echo(f"Release {output.plain(answer['release'])} serves.")
