"""``lemonbus updates``: which downloaded models and installed backends have an update."""

from __future__ import annotations

import click
from click.exceptions import Exit

from gateway.api.common.routes import Nothing
from gateway.api.lemonade.update_checks import check_updates
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.exit_codes import FAILED
from gateway.cli.options import json_option, server_option


@click.command("updates", short_help="Show which models and backends have an update.")
@json_option("the server's answer")
@server_option
def command(as_json: bool, server: ApiClient) -> None:
    """Compare the downloaded models with the hub, and the installed backends with their pinned releases.

    Nothing is downloaded. Ends with 1 if a model could not be checked.
    """
    answer = server.ask(check_updates, Nothing(), None)
    if as_json:
        output.print_json(answer)
    else:
        rows = [
            (name, "newer files at the hub", f"lemonbus delete {name}, then pull it again") for name in answer.models
        ]
        rows += [
            (
                each.backend,
                f"installed: {each.installed or 'an unknown version'}",
                f"lemonbus backends install {each.backend}",
            )
            for each in answer.backends
        ]
        rows += [(name, f"not checked: {why}", "-") for name, why in answer.failed_models.items()]
        rows += [(name, "not checked: it comes from no hub", "-") for name in answer.unchecked_models]
        if rows:
            output.table(("MODEL OR BACKEND", "STATE", "UPDATE"), rows)
        if not answer.models and not answer.backends:
            click.echo("\nNo update was found." if rows else "Everything is up to date.")
    if answer.status == "failed":
        raise Exit(FAILED)
