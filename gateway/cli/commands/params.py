"""``lemonbus params``: shows and sets the sampling defaults, for requests that do not set their own values."""

from __future__ import annotations

import json
from typing import Any

import click
from click.shell_completion import CompletionItem

from gateway.api.common.routes import Nothing
from gateway.api.lemonade.params import ParamsAnswer, set_params, show_params
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.options import json_option, server_option
from protocol.models.sampling import SAMPLING_PARAMS, SamplingChange


def _words(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem | str]:
    equals = "" if context.params.get("action") == "reset" else "="
    return [name + equals for name in SAMPLING_PARAMS if name.startswith(incomplete)]


@click.command("params", short_help="Show or set the sampling defaults.")
@click.argument("action", type=click.Choice(["show", "set", "reset"]), default="show")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE | KEY]...", shell_complete=_words)
@json_option("the server's answer")
@server_option
def command(action: str, words: tuple[str, ...], as_json: bool, server: ApiClient) -> None:
    """Show, set or reset the sampling defaults of all models.

    They apply to requests that do not set their own values, and survive restarts of the server.

    \b
    lemonbus params                                   shows them
    lemonbus params set temperature=0.2 top_k=20      sets some
    lemonbus params reset [temperature]               resets one, or all
    """  # noqa: D301 - the escape is click's mark for lines that stay as they are
    if action == "show":
        if words:
            raise click.UsageError("show takes no words; did you mean: lemonbus params set " + " ".join(words))
        answer = server.ask(show_params, Nothing())
    else:
        values = _values(words) if action == "set" else dict.fromkeys(map(_name, words or SAMPLING_PARAMS))
        answer = server.ask(set_params, SamplingChange(), more=values)
    if as_json:
        output.print_json(answer)
    else:
        _show(answer)


def _values(words: tuple[str, ...]) -> dict[str, Any]:
    """Return the values of ``KEY=VALUE`` words; the server checks them."""
    if not words:
        raise click.UsageError(f"Give each setting as KEY=VALUE; the keys are: {', '.join(SAMPLING_PARAMS)}")
    values: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not key or not equals:
            raise click.UsageError(f"expected KEY=VALUE, got {word!r}")
        try:
            values[_name(key)] = json.loads(text)
        except ValueError:
            values[_name(key)] = text
    return values


def _name(word: str) -> str:
    return word.replace("-", "_")


def _show(answer: ParamsAnswer) -> None:
    output.table(
        ("PARAMETER", "VALUE", "SET", "MEANING"),
        [
            (
                name,
                json.dumps(value),
                "yes" if name in answer.set else "-",
                SAMPLING_PARAMS[name].help if name in SAMPLING_PARAMS else "",
            )
            for name, value in answer.params.items()
        ],
    )
    for recipe, names in (answer.ignored or {}).items():
        click.echo(f"\n{output.plain(recipe)} ignores {', '.join(map(output.plain, names))}.")
