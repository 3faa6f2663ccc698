"""``lemonbus status``: shows what the server is doing."""

from __future__ import annotations

import time

import click

from gateway.api.common.routes import Nothing
from gateway.api.lemonade.health import (
    FailedModelEntry,
    LoadedModelEntry,
    RunningModelEntry,
    ServerHealth,
    show_health,
)
from gateway.cli import output
from gateway.cli.api_client import ApiClient, last_lines
from gateway.cli.options import json_option, server_option


@click.command("status", short_help="Show what the server is doing.")
@json_option("the server's answer")
@server_option
def command(as_json: bool, server: ApiClient) -> None:
    """Show which models are loaded and how busy they are, what failed, and the server's processes."""
    health = server.ask(show_health, Nothing())
    if as_json:
        output.print_json(health)
        return
    ours = health.lemonbus
    _headline(server, health)
    if ours.former_models:
        names = ", ".join(map(output.plain, ours.former_models))
        click.echo(
            f"Requests of the former release still run. When they have ended, their models are loaded again: {names}"
        )
    _models(health)
    _queues(ours.models)
    _failed_models(ours.troubled)
    if ours.processes:
        shown = (f"{process.role} {process.pid}" for process in ours.processes)
        click.echo(f"\nProcesses: supervisor {ours.pid}, {', '.join(shown)}")


def _headline(server: ApiClient, health: ServerHealth) -> None:
    ours = health.lemonbus
    state = f"lemonbus {health.version} at {server.url}: {ours.state}, up {output.duration(ours.uptime_seconds)}"
    click.secho(f"{state}, {ours.granted} running, {ours.queued} waiting", bold=True)
    for problem in ours.problems:
        click.secho(f"Problem: {output.plain(problem)}", fg="red")
    if ours.downloads:
        click.echo("Downloading: " + ", ".join(map(output.plain, ours.downloads)))


def _models(health: ServerHealth) -> None:
    """Print the models that have a worker, in any state. Those that are loaded have more facts."""
    if not health.lemonbus.models:
        if not health.lemonbus.former_models:
            click.echo("No model is loaded; the first request for one loads it.")
        return
    loaded = {model.model_name: model for model in health.all_models_loaded}
    click.echo()
    output.table(
        ("MODEL", "STATE", "RUNNING", "WAITING", "CONTEXT", "RECIPE", "LAST USE", "UNLOADED IN"),
        [_row(model, loaded.get(model.model_name)) for model in health.lemonbus.models],
    )


def _row(model: RunningModelEntry, loaded: LoadedModelEntry | None) -> tuple[object, ...]:
    now = time.time()
    used = f"{output.duration(max(0.0, now - loaded.last_use))} ago" if loaded and loaded.last_use else "-"
    left = output.duration(max(0.0, loaded.expires_at - now)) if loaded and loaded.expires_at else "-"
    return (
        model.model_name + (" (pinned)" if model.pinned else ""),
        model.state,
        f"{model.granted} of {model.slots or '?'}",
        model.queued,
        model.context or "-",
        loaded.recipe if loaded else "-",
        used,
        left,
    )


def _queues(models: list[RunningModelEntry]) -> None:
    """Print which keys wait for which model, if the server has keys and the caller may know."""
    rows = [
        (model.model_name, share.key, share.requests, share.position, f"{share.wait_s:.0f} s")
        for model in models
        for share in model.queue
        if share.key
    ]
    if rows:
        click.echo()
        output.table(("MODEL", "KEY", "WAITING", "POSITION", "EXPECTED WAIT"), rows)


def _failed_models(models: list[FailedModelEntry]) -> None:
    if not models:
        return
    click.echo()
    output.table(
        ("FAILED MODEL", "FAILURES", "NEXT TRY", "REASON"),
        [
            (
                model.model_name,
                model.failures,
                f"in {output.duration(model.retry_in_seconds)}" if model.retry_in_seconds > 0 else "on request",
                model.reason,
            )
            for model in models
        ],
    )
    for model in models:
        if detail := last_lines(model.detail):
            click.echo(output.plain(f"\nDetails of {model.model_name}:\n{detail}"))
