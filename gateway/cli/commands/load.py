"""``lemonbus load``: loads a model, with options."""

from __future__ import annotations

import re
from typing import Any

import click

from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.downloads import ensure_downloaded
from gateway.cli.options import json_option, model_argument, server_option


def parse_options(_context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    """Turn ``KEY=VALUE`` words into options; numbers become numbers, ``true`` and ``false`` booleans."""
    options: dict[str, Any] = {}
    for word in given:
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"expected KEY=VALUE, got {word!r}", param=parameter)
        options[key.replace("-", "_")] = _option_value(value)
    return options


def _option_value(text: str) -> bool | int | float | str:
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d{1,2})?", text, re.ASCII):
        return float(text)
    return text


@click.command()
@model_argument()
@click.option("--ctx-size", type=click.IntRange(min=0), help="Tokens each request may use.")
@click.option(
    "--option",
    "-o",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    callback=parse_options,
    help="An option of the model's recipe, such as llamacpp_args='--no-mmap'. Repeatable.",
)
@click.option("--save-options", is_flag=True, help="Use these options in future loads too.")
@click.option("--pin/--no-pin", default=None, help="Never evict the model, or let it be evicted again.")
@click.option(
    "--ttl",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Unload the model after so many idle seconds; 0: never. Until it is unloaded.",
)
@json_option("the server's answer")
@server_option
def command(
    model: str,
    ctx_size: int | None,
    options: dict[str, Any],
    save_options: bool,
    pin: bool | None,
    ttl: float | None,
    as_json: bool,
    server: ApiClient,
) -> None:
    """Load MODEL, downloading it first if necessary, and wait until it is ready.

    A model that is loaded with the same options stays loaded; with other options it is loaded again.
    """
    body: dict[str, Any] = {**options, "model_name": model}
    if ctx_size is not None:
        body["ctx_size"] = ctx_size
    if save_options:
        body["save_options"] = True
    if pin is not None:
        body["pinned"] = pin
    if ttl is not None:
        body["ttl"] = ttl
    ensure_downloaded(server, model)
    answer = server.call("POST", "/v1/load", body, seconds=None)
    if as_json:
        output.print_json(answer)
    else:
        click.echo(answer.get("message", f"Loaded model: {model}"))
