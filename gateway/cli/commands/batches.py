"""``lemonbus batches``: lists batches, or cancels one."""

from __future__ import annotations

from typing import Any, Final

import click

from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.options import json_option, server_option

_ROUTES: Final = {"batch": "/v1/batches", "msgbatch": "/v1/messages/batches"}
"""How an id begins → the routes of such batches: OpenAI's, and Anthropic's."""


@click.group("batches", invoke_without_command=True, short_help="List batches, or cancel one.")
@json_option("the server's lists")
@server_option
@click.pass_context
def command(context: click.Context, as_json: bool, server: ApiClient) -> None:
    """List the latest batches of requests: how many of their requests have a result, and why none of them runs now."""
    if context.invoked_subcommand is not None:
        return
    found = {kind: server.call("GET", f"{route}?limit=100")["data"] for kind, route in _ROUTES.items()}
    if as_json:
        output.print_json(found)
    elif rows := [*map(_row, found["batch"]), *map(_message_row, found["msgbatch"])]:
        output.table(("BATCH", "STATUS", "DONE", "FAILED", "ALL", "ROUTE", "WAITS BECAUSE"), rows)
    else:
        click.echo("There are no batches.")


def _row(batch: dict[str, Any]) -> tuple[str, ...]:
    counts = batch["request_counts"]
    numbers = (str(counts[name]) for name in ("completed", "failed", "total"))
    return batch["id"], batch["status"], *numbers, batch["endpoint"], batch.get("waiting_reason", "")


def _message_row(batch: dict[str, Any]) -> tuple[str, ...]:
    counts = batch["request_counts"]
    done, failed = counts["succeeded"], sum(counts[name] for name in ("errored", "canceled", "expired"))
    every = sum(counts.values())
    numbers = str(done), str(failed), str(every)
    return batch["id"], batch["processing_status"], *numbers, "/v1/messages", batch.get("waiting_reason", "")


@command.command()
@click.argument("batch")
@json_option("the batch")
@server_option
def cancel(batch: str, as_json: bool, server: ApiClient) -> None:
    """End BATCH: requests that have a result keep it, and no more are run."""
    route = _ROUTES.get(batch.partition("_")[0], _ROUTES["batch"])
    found = server.call("POST", f"{route}/{batch}/cancel")
    if as_json:
        output.print_json(found)
    else:
        click.echo(f"{batch} is {found.get('status') or found['processing_status']}.")
