"""Downloads of models, for all commands that start one."""

from __future__ import annotations

import click

from gateway.api.lemonade.model_files import LemonadePullRequest, pull_model
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
        download(server, LemonadePullRequest(model_name=model), as_json=False)


def download(server: ApiClient, request: LemonadePullRequest, as_json: bool) -> None:
    """Download a model, after registering it if the request describes a new one, and show the progress."""
    broken = f"the download of {request.model_name} broke off; pull again to continue"
    request.stream = True
    show_progress(server, pull_model, request, as_json, broken)
