"""``lemonbus downloads``: lists the downloads of models, with their progress."""

from __future__ import annotations

import click

from gateway.api.common.routes import Nothing
from gateway.api.lemonade.downloads import list_downloads
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.options import json_option, server_option
from gateway.cli.progress import downloaded


@click.command("downloads", short_help="List the downloads of models.")
@json_option("the server's answer")
@server_option
def command(as_json: bool, server: ApiClient) -> None:
    """List the downloads that run or are paused, those that failed or were cancelled, and complete ones for half a minute.

    `lemonbus pull --pause MODEL` pauses one, `lemonbus pull MODEL` resumes it, and `lemonbus delete MODEL` removes what
    was fetched.
    """
    jobs = server.ask(list_downloads, Nothing())
    if as_json:
        output.print_json(jobs)
    elif jobs:
        output.table(
            ("MODEL", "STATE", "PROGRESS"),
            [(job.model_name, job.status, job.error or downloaded(job)) for job in jobs],
        )
    else:
        click.echo("Nothing is being downloaded.")
