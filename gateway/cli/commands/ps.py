"""``lemonbus ps``: the models that are loaded or being loaded."""

from __future__ import annotations

from typing import Final

import click

from gateway.api.common.routes import Nothing
from gateway.api.operator.overview import show_overview
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.live import words
from gateway.cli.options import json_option, server_option
from gateway.overview.view import Overview
from protocol.messages.model_overview import ModelOverview

_FACTS: Final = ("WAITING", "MEMORY", "DEVICE", "CONTEXT", "UNTIL")


@click.command("ps", short_help="List the loaded models.")
@json_option("the models of the server's overview")
@server_option
def command(as_json: bool, server: ApiClient) -> None:
    """List the models that are loaded or being loaded: what they do, what they take, and until when they stay.

    `lemonbus status` also shows the server, and `lemonbus top` follows it.
    """
    overview = server.ask(show_overview, Nothing())
    models = {name: model for name, model in overview.models.items() if model.state != words.ABSENT}
    if as_json:
        output.print_json(models)
    elif models:
        output.table(
            ("NAME", "STATE", *(["NODE"] if overview.nodes else []), "RUNNING", *_FACTS),
            [
                row
                for name, model in models.items()
                for row in (_row(name, model, overview), *_replica_rows(model, overview))
            ],
        )
    else:
        click.echo(words.NO_MODEL, err=True)


def _row(name: str, model: ModelOverview, overview: Overview) -> tuple[object, ...]:
    return (
        name,
        words.state_of(model, overview.time),
        *([model.node or "-"] if overview.nodes else []),
        f"{model.running} of {model.slots}" if model.slots else "-",
        model.waiting,
        output.size(model.memory) if model.memory else "-",
        model.device or "-",
        model.context or "-",
        words.stay_of(model, overview.time) or "-",
    )


def _replica_rows(model: ModelOverview, overview: Overview) -> list[tuple[object, ...]]:
    """Return the lines of a model's engines, which stand below the line of the model."""
    return [
        (
            f"  replica {each.number}",
            each.state,
            *([each.node or "-"] if overview.nodes else []),
            f"{each.running} of {each.slots}" if each.slots else "-",
            *["-"] * len(_FACTS),
        )
        for each in model.replicas
    ]
