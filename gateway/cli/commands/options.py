"""``lemonbus options``: shows, saves and removes the load options of a model, without loading it."""

from __future__ import annotations

import json

import click
from click.shell_completion import CompletionItem

from gateway.api.lemonade.model_options import (
    ModelOptionsAnswer,
    ModelOptionsId,
    ModelOptionsRequest,
    change_model_options,
    erase_model_options,
    show_model_options,
)
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.exit_codes import CommandError
from gateway.cli.options import (
    connect_client,
    given_url,
    json_option,
    model_argument,
    option_name,
    option_values,
    server_option,
)
from protocol.models.recipes import AUTOMATIC, AUTOMATIC_CTX_SIZE

_CONTEXT = "ctx_size"
_NAME = "model_name"
"""The field of the answer that is not an option: it makes them the body of a load."""


def _words(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem | str]:
    server = context.params.get("server") or connect_client(given_url(context))
    try:
        found = server.ask(show_model_options, ModelOptionsId(model_id=context.params["model"]), seconds=1.0)
    except CommandError:
        return []  # a completion must not print an error
    equals = "" if context.params.get("action") == "reset" else "="
    return [name + equals for name in found.effective if name != _NAME and name.startswith(incomplete)]


@click.command("options", short_help="Show or save the load options of a model.")
@model_argument()
@click.argument("action", type=click.Choice(["show", "set", "reset"]), default="show")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE | KEY]...", shell_complete=_words)
@json_option("the server's answer")
@server_option
def command(model: str, action: str, words: tuple[str, ...], as_json: bool, server: ApiClient) -> None:
    """Show, save or remove the load options of MODEL. Nothing is loaded.

    They apply from its next load, and survive restarts of the server. Options that are not named stay as they are.

    \b
    lemonbus options MODEL                         shows them
    lemonbus options MODEL set ctx_size=auto       saves some
    lemonbus options MODEL reset [ctx_size]        removes one, or all
    """  # noqa: D301 - the escape is click's mark for lines that stay as they are
    named = ModelOptionsId(model_id=model)
    if action == "show":
        if words:
            raise click.UsageError("show takes no words; did you mean: set " + " ".join(words))
        answer = server.ask(show_model_options, named)
    elif action == "set" and not words:
        raise click.UsageError("Give each option as KEY=VALUE.")
    elif not words:
        answer = server.ask(erase_model_options, named)
    else:
        changes = option_values(words) if action == "set" else {option_name(word): None for word in words}
        answer = server.ask(change_model_options, ModelOptionsRequest(model_id=model), more=changes)
    if as_json:
        output.print_json(answer)
    else:
        _show(answer)


def _show(answer: ModelOptionsAnswer) -> None:
    names = [name for name in dict.fromkeys([*answer.effective, *answer.saved]) if name != _NAME]
    columns = (answer.saved, answer.effective, answer.defaults)
    output.table(
        ("OPTION", "SAVED", "NEXT LOAD", "WITHOUT SAVED"),
        [(name, *(_value(name, column.get(name)) for column in columns)) for name in names],
    )
    if answer.reload_needed:
        now = {name: value for name, value in answer.loaded_options.items() if answer.effective.get(name) != value}
        shown = ", ".join(f"{name} {_value(name, value)}" for name, value in now.items())
        different = f" ({output.plain(shown)})" if shown else ""
        click.echo(f"\nIt is loaded with other options{different}, which it keeps until it is unloaded.")


def _value(name: str, value: object) -> str:
    if name == _CONTEXT and value == AUTOMATIC_CTX_SIZE:
        return AUTOMATIC
    return "-" if value is None else value if isinstance(value, str) and value else json.dumps(value)
