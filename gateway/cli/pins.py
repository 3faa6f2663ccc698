"""The request of ``lemonbus pin`` and ``lemonbus unpin``."""

from __future__ import annotations

import click

from gateway.cli import output
from gateway.cli.api_client import ApiClient


def set_pinned(server: ApiClient, model: str, *, pinned: bool, as_json: bool) -> None:
    """Pin a loaded model or unpin it, and say so."""
    answer = server.call("POST", "/v1/pin", {"model_name": model, "pinned": pinned})
    if as_json:
        output.print_json(answer)
    else:
        name = output.plain(answer.get("model_name", model))
        click.echo(f"Pinned model: {name}" if pinned else f"Unpinned model: {name}")
