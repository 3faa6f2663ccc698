"""``lemonbus show``: the configuration of a model, and where each value comes from."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from gateway.api.operator.configuration import ConfigurationQuery, show_configuration
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.options import json_option, model_argument, server_option
from protocol.messages.model_details import ConfiguredValue
from protocol.models.recipes import ModelOrigin

_ORIGINS: Final = {
    ModelOrigin.FILES: "files of this machine or of a hub",
    ModelOrigin.PROGRAM: "a program of the configuration (command)",
    ModelOrigin.SERVER: "another server of the configuration (url)",
}


@click.command("show", short_help="Show the configuration of a model.")
@model_argument()
@json_option("the server's answer")
@server_option
def command(model: str, as_json: bool, server: ApiClient) -> None:
    """Show the configuration of MODEL: its names, load options and settings, where each value comes from, and its files.

    `lemonbus config` shows the whole configuration of this machine, with lines of the file.
    """
    shown = server.ask(show_configuration, ConfigurationQuery(model))
    if as_json:
        output.print_json(shown)
        return
    facts = [("model", shown.id), ("recipe", shown.recipe), ("type", shown.type)]
    facts += [("names", ", ".join(shown.names) or "-"), ("groups", ", ".join(shown.groups) or "-")]
    if shown.origin is ModelOrigin.FILES:
        facts.append(("downloaded", "yes" if shown.downloaded else "no"))
    facts += [("origin", _ORIGINS[shown.origin]), ("state", shown.state or "not loaded")]
    for name, value in facts:
        click.echo(f"{name:<12}{output.plain(value)}")
    loaded = shown.loaded_options
    click.echo()
    output.table(("SETTING", "VALUE", "ORIGIN"), [_row(each, loaded) for each in [*shown.options, *shown.settings]])
    if shown.files:
        click.echo()
        several = any(file.part for file in shown.files)
        output.table(
            ("SIZE", *(["PART"] if several else []), "FILE"),
            [(output.size(file.size), *([file.part or "-"] if several else []), file.path) for file in shown.files],
        )


def _row(given: ConfiguredValue, loaded: dict[str, Any]) -> tuple[str, str, str]:
    name, value = given.name, given.value
    differs = loaded and name in loaded and loaded[name] != value
    now = f" (loaded with {_text(loaded[name])})" if differs else ""
    return name, _text(value) + now, given.origin


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
