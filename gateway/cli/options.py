"""Options that commands share: the server's address, output for scripts, models and their load options."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.exit_codes import FAILED, OK, CommandError
from gateway.cli.listener_check import check_listener
from gateway.cli.settings import settings_of_server
from protocol.config.api_keys import KEY_VARIABLES
from protocol.config.settings import Settings

_KEYS: Final = (KEY_VARIABLES["admin_api_key"], KEY_VARIABLES["api_key"])

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def server_option(command: Callable[..., Any], *, reads_configuration: bool = False) -> Callable[..., Any]:
    """Add ``--url``, passed as ``server``. Without it, the ``--url`` of the parent command applies.

    ``reads_configuration``: see :func:`~gateway.cli.settings.settings_of_server`.
    """

    def connect(context: click.Context, _parameter: click.Parameter, url: str | None) -> ApiClient:
        context.obj = url or context.obj  # which the commands below this one inherit
        return connect_client(given_url(context), reads_configuration=reads_configuration)

    return click.option(
        "--url",
        "server",
        metavar="URL",
        callback=connect,
        help="Address of the server. Without it: LEMONBUS_URL, or that of this machine's configuration.",
    )(command)


def given_url(context: click.Context) -> str | None:
    """Return the address on the command line, or else the one in the environment."""
    url: str | None = context.obj
    return url or os.environ.get("LEMONBUS_URL")


def json_option(what: str) -> Decorator:
    """Add ``--json``, passed as ``as_json``. If the command fails, its error is also JSON: one line on stderr."""
    return click.option(
        "--json", "as_json", is_flag=True, is_eager=True, callback=_note_json, help=f"Print {what}, for scripts."
    )


def _note_json(context: click.Context, _parameter: click.Parameter, as_json: bool) -> bool:
    if as_json:
        context.meta[output.AS_JSON] = True
    return as_json


def model_argument(*, several: bool = False, required: bool = True) -> Decorator:
    """Add the argument MODEL, passed as ``model``, or several of them, passed as ``models``.

    They are completed with the names that the server knows.
    """
    if several:
        return click.argument("models", metavar="MODEL...", nargs=-1, required=required, shell_complete=complete_model)
    return click.argument("model", shell_complete=complete_model)


def parse_options(_context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    """Turn ``KEY=VALUE`` words into the load options of a model, as :func:`option_values` does."""
    return option_values(given, parameter)


def option_values(words: Sequence[str], parameter: click.Parameter | None = None) -> dict[str, Any]:
    """Return the load options in ``KEY=VALUE`` words; raises ``click.BadParameter``, about this parameter."""
    options: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"expected KEY=VALUE, got {word!r}", param=parameter)
        options[option_name(key)] = option_value(value)
    return options


def option_name(word: str) -> str:
    """Return the name of a load option: ``ctx-size`` is ``ctx_size``, but ``sd-cpp_backend`` is named after its recipe."""
    return word if "_" in word else word.replace("-", "_")


def option_value(text: str) -> bool | int | float | str:
    """Return a load option's value: numbers become numbers, ``true`` and ``false`` booleans."""
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d{1,2})?", text, re.ASCII):
        return float(text)
    return text


def for_each_model(models: Sequence[str], act: Callable[[str], None]) -> None:
    """Do something with each model. What the server refuses is printed, and the others are still done; then it ends with 1."""
    context, exit_code = click.get_current_context(), OK
    for model in models:
        try:
            act(model)
        except CommandError as problem:
            if problem.exit_code != FAILED:  # the server is away, or the key is wrong: the next one would fail as well
                raise
            output.print_failure(problem, context)
            exit_code = FAILED
    context.exit(exit_code)


def connect_client(url: str | None, *, reads_configuration: bool = False) -> ApiClient:
    """Return the server at ``url``, or the one in this machine's configuration.

    A key from the configuration file is only sent to the server that it describes, and no key to another user's program at the
    address in the configuration.
    ``reads_configuration``: see :func:`~gateway.cli.settings.settings_of_server`.
    """
    if url:
        admin, weaker = (next(filter(None, map(os.environ.get, names)), "") for names in _KEYS)
        return ApiClient(url, admin or weaker, weaker_key=weaker)
    settings = settings_of_server(reads_configuration=reads_configuration)
    return configured_client(settings)


def configured_client(settings: Settings) -> ApiClient:
    """Return the server that these settings describe, at their address."""
    key, check = settings.admin_api_key or settings.api_key, partial(check_listener, settings=settings)
    return ApiClient(settings.base_url, key, check, weaker_key=settings.api_key)


def complete_model(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem | str]:
    """Return the names of models that begin with ``incomplete``, as the server knows them."""
    from gateway.api.openai.models import ModelsQuery, list_models  # noqa: PLC0415 - most commands complete nothing

    server = context.params.get("server") or connect_client(given_url(context))
    try:
        models = server.ask(list_models, ModelsQuery(show_all=True), seconds=1.0).data
    except CommandError:
        return []  # a completion must not print an error
    names = [name for model in models for name in (model.id, *(model.aliases or ()))]
    return [name for name in names if name.startswith(incomplete)]
