"""``lemonbus keys``: makes, lists and revokes API keys of the running server, or of a state directory."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from gateway.api.operator.keys import ChangedKeys
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.key_store import FileKeys, KeyStore, ServerKeys
from gateway.cli.options import json_option, server_option
from protocol.config.api_keys import KEY_VARIABLES, KeyRights, Scope

_limit = click.IntRange(min=1, max=10**12)


@click.group("keys", short_help="Make, list or revoke API keys.")
def command() -> None:
    """Make, list or revoke API keys.

    The running server does it. If it needs keys, it needs one with the scope admin, from LEMONBUS_ADMIN_API_KEY. With
    --state-dir, the command changes the file keys.json of that directory: for a server that has not started yet, or
    whose administrators have no key.
    """


def _store_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--url`` and ``--state-dir``, passed together as ``store``."""

    @functools.wraps(command)
    def connected(server: ApiClient, state_dir: Path | None, **others: Any) -> Any:
        return command(store=FileKeys(state_dir, server) if state_dir else ServerKeys(server), **others)

    named = click.option(
        "--state-dir",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Change the file in this state directory, instead of asking the server.",
    )
    return named(server_option(connected))


@command.command()
@click.argument("name")
@click.option(
    "--scope",
    metavar="SCOPE,…",
    default=Scope.INFERENCE.value,
    show_default=True,
    help=f"Allowed uses: {', '.join(Scope)}. admin includes the others.",
)
@click.option("--models", multiple=True, metavar="GLOB", help="Names of models that it may use. Repeatable.")
@click.option("--requests-per-minute", type=_limit, default=None, metavar="N")
@click.option("--tokens-per-minute", type=_limit, default=None, metavar="N", help="Prompts and answers together.")
@click.option("--tokens-per-day", type=_limit, default=None, metavar="N", help="Days and months are those of UTC.")
@click.option("--tokens-per-month", type=_limit, default=None, metavar="N")
@click.option("--concurrent", type=_limit, default=None, metavar="N", help="Requests that may wait or run at once.")
@click.option("--expires", metavar="DATE", help="A date, or a date with a time: 2031-05-01, 2031-05-01T12:00+02:00.")
@json_option("the key and where it is kept")
@_store_option
def add(
    store: KeyStore,
    as_json: bool,
    name: str,
    scope: str,
    models: tuple[str, ...],
    requests_per_minute: int | None,
    tokens_per_minute: int | None,
    tokens_per_day: int | None,
    tokens_per_month: int | None,
    concurrent: int | None,
    expires: str | None,
) -> None:
    """Make the key NAME and print it. It is shown only now."""
    if name in KEY_VARIABLES:
        raise click.BadParameter(f"{name} is the name of a setting.", param_hint="NAME")
    wanted = {
        "name": name,
        "scopes": _scopes(scope),
        "models": [part.strip() for pattern in models for part in pattern.split(",")],
        "requests_per_minute": requests_per_minute or 0,
        "tokens_per_minute": tokens_per_minute or 0,
        "tokens_per_day": tokens_per_day or 0,
        "tokens_per_month": tokens_per_month or 0,
        "concurrent": concurrent or 0,
        "expires": _moment(expires) if expires else 0.0,
    }
    try:
        rights = msgspec.convert(wanted, KeyRights)
    except msgspec.ValidationError as problem:
        field = "NAME" if "$.name" in str(problem) else "--models"
        allowed = "letters, digits, dots, dashes and underscores" if field == "NAME" else "patterns of names of models"
        raise click.BadParameter(f"expected {allowed}.", param_hint=field) from problem
    added = store.add(rights)
    if as_json:
        output.print_json(added)
    else:
        click.echo(added.key)
    click.echo(f"Added key {name}. It is not stored and will not be shown again.", err=True)
    _report(store, added)
    if added.first:
        click.echo(
            "It is the first key: every client now needs one. `lemonbus` and `systemctl reload` read theirs from LEMONBUS_ADMIN_API_KEY.",
            err=True,
        )


def _report(store: KeyStore, changed: ChangedKeys) -> None:
    """Say on stderr where the change was made, when it takes effect, and which keys are left."""
    count, file = changed.valid_keys, output.plain(changed.file)
    valid = f"{count} valid key{'' if count == 1 else 's'}"
    click.echo(f"Written to {file}. {store.effect(valid)}", err=True)
    if count and not changed.valid_admin_keys:
        click.echo(
            "No key has the scope admin. Unless the settings contain one, the server refuses every command that changes it."
            f" `lemonbus keys add NAME --scope admin --state-dir {Path(file).parent}` makes one.",
            err=True,
        )


@command.command(name="list")
@json_option("the keys without their digests")
@_store_option
def show(store: KeyStore, as_json: bool) -> None:
    """List the keys: their scopes, limits and expiry. The keys themselves are not stored."""
    answer = store.listed()
    keys = answer.keys
    if as_json:
        output.print_json(keys)
        return
    output.table(
        (
            "KEY",
            "SCOPES",
            "MODELS",
            "REQUESTS/MIN",
            "TOKENS/MIN",
            "TOKENS/DAY",
            "TOKENS/MONTH",
            "CONCURRENT",
            "CREATED",
            "EXPIRES",
        ),
        [
            (
                key.name,
                ",".join(key.scopes),
                ",".join(key.models) or "all",
                key.requests_per_minute or "-",
                key.tokens_per_minute or "-",
                key.tokens_per_day or "-",
                key.tokens_per_month or "-",
                key.concurrent or "-",
                _day(key.created) if key.origin == "file" else "(settings)",
                "expired" if 0 < key.expires <= time.time() else _day(key.expires),
            )
            for key in keys
        ],
    )
    needed = "" if answer.required else f" {store.not_required}"
    click.echo(f"The file: {output.plain(answer.file)}.{needed}", err=True)


@command.command()
@click.argument("name")
@json_option("which keys are left")
@_store_option
def revoke(store: KeyStore, as_json: bool, name: str) -> None:
    """Revoke the key NAME. The server refuses it at once, and ends its running requests."""
    changed = store.revoke(name)
    if as_json:
        output.print_json(changed)
    else:
        click.echo(f"Revoked key {name}")
    _report(store, changed)
    if not changed.valid_keys:
        click.echo(
            f"{store.none_left}: a server whose settings have no key refuses every request."
            f" `lemonbus keys add NAME --scope admin --state-dir {Path(output.plain(changed.file)).parent}` makes a key."
            " To serve without keys, delete the file and start the server again.",
            err=True,
        )


def _scopes(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = next((word for word in words if word not in [*Scope]), None)
    if unknown is not None or not words:
        raise click.BadParameter(f"{unknown or text!r} is not one of {', '.join(Scope)}.", param_hint="--scope")
    return list(dict.fromkeys(words))


def _moment(text: str) -> float:
    """Return Unix seconds. Without an offset, the time is in this machine's zone."""
    try:
        moment = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError) as problem:
        raise click.BadParameter(f"{text!r} is not a date such as 2031-05-01.", param_hint="--expires") from problem
    if moment <= time.time():
        raise click.BadParameter(f"{text} is past.", param_hint="--expires")
    return moment


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%MZ") if moment else "-"
