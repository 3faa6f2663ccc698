"""``lemonbus config``: shows every setting with its value and its origin, and how the running server differs."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Final

import click

from gateway.api.common.routes import Nothing
from gateway.api.operator.configuration import SettingInUse, show_settings
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.exit_codes import UNREACHABLE, CommandError
from gateway.cli.options import configured_client, connect_client, given_url, json_option
from gateway.cli.settings import config_option, resolved, supervisor_environment, where_it_listens
from protocol.config.fields import SECRET_SETTINGS, setting_fields
from protocol.config.resolver import masked
from protocol.config.sections import section_values
from protocol.config.settings import Settings

_TIMEOUT_S: Final = 5.0


@click.command("config", short_help="Show every setting and where its value comes from.")
@config_option
@json_option("one JSON object")
def command(config: str, as_json: bool) -> None:
    """Show the settings that `lemonbus serve` would use if started from this shell, and where each value comes from. Keys are masked.

    If a server answers at the address, the output also shows its directories and what differs: another user may have started it.
    """
    found = resolved(config=config)
    # Only the supervisor knows the options of recipes; it reports wrong ones itself.
    command = [sys.executable, "-m", "supervisor.lifecycle.startup"]
    code = os.spawnve(os.P_WAIT, sys.executable, command, {**os.environ, **supervisor_environment(found)})  # noqa: S606 - no shell
    if code:
        click.get_current_context().exit(code)
    values = {name: masked(name, getattr(found.settings, name)) for name in setting_fields()}
    values |= section_values(found.settings)
    server = _server(found.settings)
    running = _running_settings(server)
    if as_json:
        shown: dict[str, dict[str, Any]] = {
            name: {"value": value, "origin": found.origins[name].kind, "where": found.origins[name].name}
            for name, value in values.items()
        }
        for name, of_server in running.items():
            shown.setdefault(name, {})["server"] = of_server
        output.print_json(shown)
    else:
        output.table(
            ("SETTING", "VALUE", "ORIGIN"),
            [(name, json.dumps(value, ensure_ascii=False), str(found.origins[name])) for name, value in values.items()],
        )
        if server is not None and running:
            _show_running(server.url, running, values)
    for warning in found.warnings:
        click.echo(f"lemonbus: {warning}", err=True)


def _server(settings: Settings) -> ApiClient | None:
    """Return the server at the given address, else at the address in these settings; None if they leave the port to the system."""
    url = given_url(click.get_current_context())
    if url:
        return connect_client(url)
    if not settings.port:
        return None
    return configured_client(where_it_listens(settings))


def _running_settings(server: ApiClient | None) -> dict[str, SettingInUse]:
    """Return the settings of the running server, by their names; empty if it cannot be asked, which stderr says."""
    if server is None:
        return {}
    try:
        return server.ask(show_settings, Nothing(), seconds=_TIMEOUT_S).settings
    except CommandError as problem:
        if problem.exit_code == UNREACHABLE:
            click.echo(f"lemonbus: no server is running at {server.url}", err=True)
        else:
            click.echo(f"lemonbus: the settings of the running server are unknown: {problem}", err=True)
        return {}


def _show_running(url: str, running: dict[str, SettingInUse], values: dict[str, Any]) -> None:
    """Show the directories of the running server, and where its settings differ from those here."""
    rows = []
    for name, of_server in running.items():
        field = setting_fields().get(name)
        if name in SECRET_SETTINGS:  # masked, and the key here is for this command
            continue
        differs = name not in values or of_server.value != values[name]
        if differs or (field is not None and field.is_directory):
            value = json.dumps(of_server.value, ensure_ascii=False)
            rows.append((name, value, of_server.origin, "differs" if differs else "the same"))
    rows.extend((name, "-", "-", "differs") for name in values if name not in running)
    click.echo(f"\nThe server at {url} runs with:")
    output.table(("SETTING", "VALUE", "ORIGIN", "HERE"), rows)
