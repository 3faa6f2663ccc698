"""Downloads of models, for all commands that start one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from gateway.api.openai.models import ModelsQuery, list_models
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.exit_codes import CommandError
from gateway.cli.progress import show_progress


def ensure_downloaded(server: ApiClient, model: str) -> None:
    """Download a known model that is not downloaded yet, and show the progress. Other cases are left to the server."""
    try:
        known = server.ask(list_models, ModelsQuery(show_all=True)).data
    except CommandError:
        return
    if any(entry.id == model and not entry.downloaded for entry in known):
        click.echo(f"Downloading {output.plain(model)} first.", err=True)
        download(server, model, as_json=False)


def download(server: ApiClient, model: str, as_json: bool, registration: Mapping[str, Any] | None = None) -> None:
    """Download a model, after registering it if ``registration`` is given, and show the progress."""
    broken = f"the download of {model} broke off; pull again to continue"
    show_progress(server, "/v1/pull", {"model_name": model, **(registration or {})}, as_json, broken)
