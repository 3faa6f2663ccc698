"""What commands that change the configuration file have in common: ``--url``, and the server that is to read the file."""

from __future__ import annotations

import os

import click

from gateway.cli.api_client import ApiClient
from gateway.cli.exit_codes import CommandError
from gateway.cli.options import configured_client, connect_client, given_url
from gateway.cli.settings import resolved, where_it_listens
from protocol.config.resolver import readable_settings
from protocol.config.settings import Settings


def note_url(context: click.Context, _parameter: click.Parameter, url: str | None) -> None:
    """Pass the address of ``--url`` to what asks the server."""
    context.obj = url or context.obj


def present_settings(config: str) -> Settings:
    """Return the settings with which the server can be asked: those before the change, which may mend a wrong file."""
    try:
        return resolved(config=config).settings
    except CommandError:
        return readable_settings(os.environ)


def server_of(settings: Settings) -> ApiClient | None:
    """Return the server at the given address, else at the address in these settings; None if they leave the port to the system."""
    url = given_url(click.get_current_context())
    if url:
        return connect_client(url)
    if not settings.port:
        return None
    return configured_client(where_it_listens(settings))
