"""``lemonbus prune``: removes what nothing uses from the server's disk."""

from __future__ import annotations

import sys

import click
from click.exceptions import Exit

from gateway.api.operator.disk_usage import PruneAnswer, PruneRequest, prune_disk
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.exit_codes import FAILED
from gateway.cli.options import json_option, server_option


@click.command("prune", short_help="Remove what nothing uses from the disk.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--prompt-caches", is_flag=True, help="Also the kept prompt caches of models that exist.")
@json_option("the server's answer")
@server_option
def command(dry_run: bool, yes: bool, prompt_caches: bool, as_json: bool, server: ApiClient) -> None:
    """Remove partial downloads, replaced versions of engines, and files and prompt caches of deleted models.

    What a loaded model, a running or paused download or another process uses stays. On a terminal, the command shows what it
    found and asks first; elsewhere it needs --yes or --dry-run.
    """
    asks = not (dry_run or yes)
    if asks and not sys.stdin.isatty():
        raise click.UsageError("Add --yes, or --dry-run to see what would be removed.")
    if asks:
        found = server.ask(prune_disk, PruneRequest(dry_run=True, prompt_caches=prompt_caches), None)
        _show(found, err=as_json)
        if not found.items:
            return
        click.confirm("Remove this?", abort=True, err=True)
    answer = server.ask(prune_disk, PruneRequest(dry_run=dry_run, prompt_caches=prompt_caches), None)
    if as_json:
        output.print_json(answer)
    elif dry_run:
        _show(answer)
    else:
        removed = sum(item.removed for item in answer.items)
        click.echo(f"Removed {removed} of {len(answer.items)}; {output.size(answer.freed)} were freed.")
    kept = [item for item in answer.items if item.kept]
    for item in kept:
        click.echo(f"lemonbus: {output.plain(item.path)} was kept: {output.plain(item.kept)}", err=True)
    if kept:
        raise Exit(FAILED)


def _show(answer: PruneAnswer, *, err: bool = False) -> None:
    if not answer.items:
        click.echo("Nothing is unused.", err=err)
        return
    if not err:
        output.disk_table(answer.items)
    click.echo(f"\n{output.size(answer.total)} in {len(answer.items)} items", err=True)
