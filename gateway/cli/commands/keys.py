"""``lemonbus keys``: makes, lists and revokes API keys, in the file that a server on this machine reads."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from gateway.cli import output
from gateway.cli.exit_codes import USAGE, CommandError
from gateway.cli.options import json_option
from gateway.cli.settings import config_option, resolved
from protocol.config.api_keys import (
    KEY_VARIABLES,
    ApiKey,
    Scope,
    digest,
    key_file,
    locked_keys,
    new_key,
    write_keys,
)

_limit = click.IntRange(min=1, max=10**12)


@click.group()
def command() -> None:
    """Make, list or revoke API keys.

    They are in keys.json in the server's state directory, as digests only. A running server follows each change at once.
    """


@command.command()
@click.argument("name")
@click.option(
    "--scope",
    metavar="SCOPE,…",
    default=Scope.INFERENCE.value,
    show_default=True,
    help=f"What it may be used for: {', '.join(Scope)}. admin includes the others.",
)
@click.option("--models", multiple=True, metavar="GLOB", help="Names of models that it may use. Repeatable.")
@click.option("--requests-per-minute", type=_limit, default=None, metavar="N")
@click.option("--tokens-per-minute", type=_limit, default=None, metavar="N", help="Prompts and answers together.")
@click.option("--concurrent", type=_limit, default=None, metavar="N", help="Requests that may wait or run at once.")
@click.option("--expires", metavar="DATE", help="A day, or a day with a time: 2031-05-01, 2031-05-01T12:00+02:00.")
@config_option
def add(
    name: str,
    scope: str,
    models: tuple[str, ...],
    requests_per_minute: int | None,
    tokens_per_minute: int | None,
    concurrent: int | None,
    expires: str | None,
    config: str,
) -> None:
    """Make the key NAME and print it. It is shown this once."""
    secret = new_key()
    if name in KEY_VARIABLES:
        raise click.BadParameter(f"{name} is the name of a setting.", param_hint="NAME")
    wanted = {
        "name": name,
        "sha256": digest(secret),
        "scopes": _scopes(scope),
        "models": list(models),
        "requests_per_minute": requests_per_minute or 0,
        "tokens_per_minute": tokens_per_minute or 0,
        "concurrent": concurrent or 0,
        "created": float(int(time.time())),
        "expires": _moment(expires) if expires else 0.0,
    }
    try:
        key = msgspec.convert(wanted, ApiKey)
    except msgspec.ValidationError as problem:
        field = "NAME" if "$.name" in str(problem) else "--models"
        allowed = "letters, digits, dots, dashes and underscores" if field == "NAME" else "patterns of names of models"
        raise click.BadParameter(f"expected {allowed}.", param_hint=field) from problem
    with _changing(config) as (path, keys):
        if any(other.name == name for other in keys):
            raise CommandError(f"there is a key {name} already; revoke it first, or choose another name")
        write_keys(path, [*keys, key])
    click.echo(secret)
    click.echo(f"Added key {name}. It is not stored and will not be shown again.", err=True)


@command.command(name="list")
@json_option("the keys without their digests")
@config_option
def show(as_json: bool, config: str) -> None:
    """List the keys: their scopes, limits and expiry. The keys themselves are not stored."""
    with _changing(config) as (_, keys):
        pass
    if as_json:
        shown = [msgspec.to_builtins(key) | {"scopes": [*key.scopes]} for key in keys]
        output.print_json([{name: value for name, value in key.items() if name != "sha256"} for key in shown])
        return
    output.table(
        ("KEY", "SCOPES", "MODELS", "REQUESTS/MIN", "TOKENS/MIN", "CONCURRENT", "CREATED", "EXPIRES"),
        [
            (
                key.name,
                ",".join(key.scopes),
                ",".join(key.models) or "all",
                key.requests_per_minute or "-",
                key.tokens_per_minute or "-",
                key.concurrent or "-",
                _day(key.created),
                "expired" if key.expired(time.time()) else _day(key.expires),
            )
            for key in keys
        ],
    )


@command.command()
@click.argument("name")
@config_option
def revoke(name: str, config: str) -> None:
    """Revoke the key NAME: from now on the server refuses it, and ends what it has begun."""
    with _changing(config) as (path, keys):
        kept = [key for key in keys if key.name != name]
        if len(kept) == len(keys):
            raise CommandError(f"there is no key {name}; `lemonbus keys list` lists them")
        write_keys(path, kept)
    click.echo(f"Revoked key {name}")
    if not kept:
        click.echo(
            f"No key is left in {path}: a server without a key of its settings refuses every request now."
            " To serve without keys, delete the file and start the server again.",
            err=True,
        )


@contextlib.contextmanager
def _changing(config: str) -> Iterator[tuple[Path, list[ApiKey]]]:
    """Return the file and its keys, while no other command changes it."""
    path = key_file(resolved(config=config).settings)
    try:
        with locked_keys(path) as keys:
            yield path, keys
    except ValueError as problem:
        raise CommandError(f"{path.parent}: {problem}", USAGE) from problem


def _scopes(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = next((word for word in words if word not in [*Scope]), None)
    if unknown is not None or not words:
        raise click.BadParameter(f"{unknown or text!r} is none of {', '.join(Scope)}.", param_hint="--scope")
    return list(dict.fromkeys(words))


def _moment(text: str) -> float:
    """Return Unix seconds; without an offset the time is this machine's."""
    try:
        moment = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError) as problem:
        raise click.BadParameter(f"{text!r} is no date such as 2031-05-01.", param_hint="--expires") from problem
    if moment <= time.time():
        raise click.BadParameter(f"{text} is past.", param_hint="--expires")
    return moment


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%MZ") if moment else "-"
