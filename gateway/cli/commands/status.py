"""``lemonbus status``: shows what the server is doing."""

from __future__ import annotations

import time
from typing import Any

import click

from gateway.cli import output
from gateway.cli.api_client import ApiClient, last_lines
from gateway.cli.options import json_option, server_option


@click.command("status", short_help="Show what the server is doing.")
@json_option("the server's answer")
@server_option
def command(as_json: bool, server: ApiClient) -> None:
    """Show which models are loaded and how busy they are, what failed, and the server's processes."""
    health = server.call("GET", "/v1/health")
    if as_json:
        output.print_json(health)
        return
    ours = health.get("lemonbus") or {}
    _headline(server, health, ours)
    former = ours.get("former_models") or []
    if former:
        names = ", ".join(map(output.plain, former))
        click.echo(
            f"Requests of the former release still run. When they have ended, their models are loaded again: {names}"
        )
    documented = {model["model_name"]: model for model in health["all_models_loaded"]}
    _models(ours.get("models") or [], documented, idle=not former)
    _queues(ours.get("models") or [])
    _failed_models(ours.get("troubled") or [])
    if ours.get("processes"):
        shown = (f"{process['role']} {process['pid']}" for process in ours["processes"])
        click.echo(f"\nProcesses: supervisor {ours['pid']}, {', '.join(shown)}")


def _headline(server: ApiClient, health: dict[str, Any], ours: dict[str, Any]) -> None:
    parts = [f"lemonbus {health['version']} at {server.url}: {ours.get('state', health['status'])}"]
    if ours:
        parts.append(f"up {output.duration(ours['uptime_seconds'])}")
        parts.append(f"{ours['granted']} running, {ours['queued']} waiting")
    click.secho(", ".join(parts), bold=True)
    for problem in ours.get("problems") or []:
        click.secho(f"Problem: {output.plain(problem)}", fg="red")
    if ours.get("downloads"):
        click.echo("Downloading: " + ", ".join(map(output.plain, ours["downloads"])))


def _models(models: list[dict[str, Any]], documented: dict[str, dict[str, Any]], *, idle: bool) -> None:
    """Print the models that have a worker, in any state. The documented fields only cover loaded models.

    ``idle``: if there are none, nothing runs.
    """
    rows = {name: {"state": "ready", **facts} for name, facts in documented.items()}
    for model in models:
        rows[model["model_name"]] = {**documented.get(model["model_name"], {}), **model}
    if not rows:
        if idle:
            click.echo("No model is loaded; the first request for one loads it.")
        return
    click.echo()
    output.table(
        ("MODEL", "STATE", "RUNNING", "WAITING", "CONTEXT", "RECIPE", "LAST USE", "UNLOADED IN"),
        [
            (
                name + (" (pinned)" if facts.get("pinned") else ""),
                facts["state"],
                f"{facts.get('granted', 0)} of {facts.get('slots') or '?'}",
                facts.get("queued", 0),
                facts.get("context") or "-",
                facts.get("recipe", "-"),
                f"{output.duration(max(0.0, time.time() - facts['last_use']))} ago" if facts.get("last_use") else "-",
                output.duration(max(0.0, facts["expires_at"] - time.time())) if facts.get("expires_at") else "-",
            )
            for name, facts in rows.items()
        ],
    )


def _queues(models: list[dict[str, Any]]) -> None:
    """Print which keys wait for which model, if the server has keys and the caller may know."""
    rows = [
        (model["model_name"], share["key"], share["requests"], share["position"], f"{share['wait_s']:.0f} s")
        for model in models
        for share in model.get("queue", [])
        if share["key"]
    ]
    if rows:
        click.echo()
        output.table(("MODEL", "KEY", "WAITING", "POSITION", "EXPECTED WAIT"), rows)


def _failed_models(models: list[dict[str, Any]]) -> None:
    if not models:
        return
    click.echo()
    output.table(
        ("FAILED MODEL", "FAILURES", "NEXT TRY", "REASON"),
        [
            (
                model["model_name"],
                model["failures"],
                f"in {output.duration(model['retry_in_seconds'])}" if model["retry_in_seconds"] > 0 else "on request",
                model["reason"],
            )
            for model in models
        ],
    )
    for model in models:
        detail = last_lines(model.get("detail"))
        if detail:
            click.echo(output.plain(f"\nDetails of {model['model_name']}:\n{detail}"))
