"""``lemonbus list``: the models of the catalogue."""

from __future__ import annotations

from typing import Final

import click

from gateway.api.openai.models import ModelObject, ModelsQuery, list_models
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.options import json_option, server_option
from protocol.models.recipes import ModelOrigin

_WITHOUT_FILES: Final[dict[object, str]] = {ModelOrigin.PROGRAM: "configured", ModelOrigin.SERVER: "elsewhere"}


@click.command("list", short_help="List the models.")
@click.option("--all", "-a", "show_all", is_flag=True, help="Also models that are not downloaded.")
@click.option("--hidden", is_flag=True, help="Only models that this machine cannot run, with the reason.")
@json_option("the server's answer")
@server_option
def command(show_all: bool, hidden: bool, as_json: bool, server: ApiClient) -> None:
    """List the downloaded models, or all that this machine can run."""
    answer = server.ask(list_models, ModelsQuery(show_all=True))
    unsupported = [model for model in answer.data if not (model.downloaded or model.supported)]
    if hidden:
        answer.data = unsupported
    elif not show_all:
        answer.data = [model for model in answer.data if model.downloaded]
    if as_json:
        output.print_json(answer)
    elif hidden:
        output.table(
            ("NAME", "SIZE", "RECIPE", "REASON"),
            [(model.id, _size(model), model.recipe, model.unsupported_reason) for model in unsupported],
        )
    else:
        runnable = [model for model in answer.data if model not in unsupported]
        _show(runnable, unsupported if show_all else [])


def _show(models: list[ModelObject], unsupported: list[ModelObject]) -> None:
    if not models:
        click.echo("No model is downloaded yet; lemonbus list --all shows what can be pulled.", err=True)
        return
    several = any(model.nodes for model in models)
    output.table(
        ("NAME", "SIZE", "STATE", *(["NODES"] if several else []), "RECIPE", "LABELS"),
        [
            (
                model.id,
                _size(model),
                _state(model),
                *([" ".join(model.nodes or ["-"])] if several else []),
                model.recipe,
                " ".join(model.labels),
            )
            for model in models
        ],
    )
    if unsupported:
        click.echo(f"{len(unsupported)} more cannot be run here; lemonbus list --hidden shows the reasons.", err=True)


def _state(model: ModelObject) -> str:
    if model.loaded:
        return "loaded"
    return _WITHOUT_FILES.get(model.origin) or ("downloaded" if model.downloaded else "-")


def _size(model: ModelObject) -> str:
    return output.size(model.size * 1e9) if model.size else "-"
