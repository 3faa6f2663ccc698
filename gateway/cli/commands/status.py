"""``lemonbus status``: shows what the server is doing."""

from __future__ import annotations

import time

import click

from gateway.api.common.routes import Nothing
from gateway.api.lemonade.health import OperatorHealth, ServerHealth, show_health
from gateway.api.lemonade.model_entries import FailedModelEntry, LoadedModelEntry, LoadEntry, RunningModelEntry
from gateway.cli import output
from gateway.cli.api_client import ApiClient, last_lines
from gateway.cli.live.words import NO_MODEL, stage_of
from gateway.cli.options import json_option, server_option
from protocol.messages.health import EngineDeaths, ReplicaReport
from protocol.messages.peers import Peer


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
    _loads(ours.loads)
    _queues(ours.models)
    _failed_models(ours.troubled)
    _engine_deaths(ours.engine_deaths)
    _machine(ours)
    if ours.processes:
        shown = (_process(each) for each in ours.processes)
        click.echo(f"\nProcesses: supervisor {ours.pid}, {', '.join(shown)}")


def _process(process: Peer) -> str:
    """Return a process in words. A pid of another machine is not one of this one."""
    where = f" on {output.plain(process.node)}" if process.node else ""
    return f"{process.role} {process.pid}{where}"


def _headline(server: ApiClient, health: ServerHealth) -> None:
    ours = health.lemonbus
    state = f"lemonbus {health.version} at {server.url}: {ours.state}, up {output.duration(ours.uptime_seconds)}"
    click.secho(f"{state}, {ours.granted} running, {ours.queued} waiting", bold=True)
    if ours.drained:
        click.echo("Drained: it takes no new requests; `lemonbus undrain` ends this.")
    for problem in health.problems:
        click.secho(f"Problem: {output.plain(problem)}", fg="red")
    if ours.downloads:
        click.echo("Downloading: " + ", ".join(map(output.plain, ours.downloads)))


def _models(health: ServerHealth) -> None:
    """Print the models that have a worker, in any state. Those that are loaded have more facts."""
    if not health.lemonbus.models:
        if not health.lemonbus.former_models:
            click.echo(NO_MODEL)
        return
    loaded = {model.model_name: model for model in health.all_models_loaded}
    node = ["NODE"] if health.lemonbus.nodes else []
    click.echo()
    output.table(
        ("MODEL", "STATE", *node, "RUNNING", "WAITING", "CONTEXT", "RECIPE", "LAST USE", "UNLOADED IN"),
        [
            row
            for model in health.lemonbus.models
            for row in (
                _row(model, loaded.get(model.model_name), with_node=bool(node)),
                *(_replica_row(each, with_node=bool(node)) for each in model.replicas or ()),
            )
        ],
    )


def _replica_row(replica: ReplicaReport, *, with_node: bool) -> tuple[object, ...]:
    """Return the line of one of a model's engines, which stands below the line of the model."""
    node = [replica.node or "-"] if with_node else []
    running = f"{replica.running} of {replica.slots or '?'}"
    return (f"  replica {replica.number}", replica.state, *node, running, *["-"] * 5)


def _row(model: RunningModelEntry, loaded: LoadedModelEntry | None, *, with_node: bool) -> tuple[object, ...]:
    now = time.time()
    used = f"{output.duration(max(0.0, now - loaded.last_use))} ago" if loaded and loaded.last_use else "-"
    left = output.duration(max(0.0, loaded.expires_at - now)) if loaded and loaded.expires_at else "-"
    return (
        model.model_name + (" (pinned)" if model.pinned else ""),
        model.state,
        *([model.node or "-"] if with_node else []),
        f"{model.granted} of {model.slots or '?'}",
        model.queued,
        model.context or "-",
        loaded.recipe if loaded else "-",
        used,
        left,
    )


def _loads(loads: list[LoadEntry]) -> None:
    """Print the loads under way."""
    if loads:
        click.echo()
        rows = [
            (
                load.model_name + (f" (replica {load.replica})" if load.replica else ""),
                stage_of(load.stage, output.plain(load.node) if load.node else "", load.done),
                output.duration(load.age_seconds),
                f"{load.done} of {load.total} {load.unit}" if load.total else "-",
                load.waiting,
            )
            for load in loads
        ]
        output.table(("LOADING", "STAGE", "FOR", "PROGRESS", "WAITING"), rows)


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


def _machine(ours: OperatorHealth) -> None:
    """Print what is left of the memory, by node if there are several, and of the disks."""
    if ours.nodes:
        click.echo()
        output.node_table(ours.nodes)
    elif ours.memory:
        click.echo()
        output.table(
            ("MEMORY", "FREE", "OF", "BUSY", "LIMITED BY"),
            [
                (
                    each.name or each.place,
                    output.size(each.free_bytes),
                    output.size(each.total_bytes),
                    "-" if each.utilization_percent is None else f"{each.utilization_percent:.0f} %",
                    each.limited_by or "-",
                )
                for each in ours.memory
            ],
        )
    if ours.disks:
        shown = (f"{output.size(disk.free_bytes)} for {disk.directory}" for disk in ours.disks)
        click.echo(f"\nFree disk space: {', '.join(shown)}")


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


def _engine_deaths(models: list[EngineDeaths]) -> None:
    """Print how often the engines of each model died, when they did last, and why the last one did."""
    if not models:
        return
    click.echo()
    output.table(
        ("ENGINE DEATHS OF", "TIMES", "LAST ONES", "REASON OF THE LAST"),
        [
            (
                model.model,
                model.count,
                ", ".join(output.duration(death.age) for death in model.last) + " ago",
                model.last[0].reason,
            )
            for model in models
        ],
    )
