"""``lemonbus du``: what the server has on the disk."""

from __future__ import annotations

import click

from gateway.api.common.routes import Nothing
from gateway.api.operator.disk_usage import show_disk_usage
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.options import json_option, server_option


@click.command("du", short_help="Show what takes space on the disk.")
@json_option("the server's answer")
@server_option
def command(as_json: bool, server: ApiClient) -> None:
    """Show what models, engines, prompt caches, partial downloads and the state of the server take on its disk.

    Each file counts once, however many models use it. `lemonbus prune` removes what nothing uses.
    """
    answer = server.ask(show_disk_usage, Nothing(), None)
    if as_json:
        output.print_json(answer)
        return
    output.disk_table(answer.items)
    unused = f", of which nothing uses {output.size(answer.unused)}: lemonbus prune" if answer.unused else ""
    click.echo(f"\n{output.size(answer.total)} in all{unused}")
