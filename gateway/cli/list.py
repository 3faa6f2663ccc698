"""``lemonbus list``: the models of the catalogue."""

from __future__ import annotations

import click

from gateway.cli import screen
from gateway.cli.connect import json_option, server_option
from gateway.cli.server import Server


@click.command()
@click.option("--all", "-a", "show_all", is_flag=True, help="Also those that are not downloaded.")
@json_option("the server's answer")
@server_option
def verb(show_all: bool, as_json: bool, server: Server) -> None:
    """List the models that are downloaded, or the whole catalogue."""
    answer = server.call("GET", "/v1/models?show_all=true")
    if not show_all:
        answer["data"] = [model for model in answer["data"] if model["downloaded"]]
    if as_json:
        screen.print_json(answer)
        return
    if not answer["data"]:
        click.echo("No model is downloaded yet; lemonbus list --all shows what can be pulled.", err=True)
        return
    screen.table(
        ("NAME", "SIZE", "STATE", "RECIPE", "LABELS"),
        [
            (
                model["id"],
                screen.size(model["size"] * 1e9) if model.get("size") else "-",
                "loaded" if model.get("loaded") else "downloaded" if model["downloaded"] else "-",
                model["recipe"],
                " ".join(model.get("labels") or []),
            )
            for model in answer["data"]
        ],
    )
