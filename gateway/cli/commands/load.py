"""``lemonbus load`` and ``unload`` (``stop``): load a model, with options, and unload some or all."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from typing import Any, Final

import click
from click.exceptions import Exit

from gateway.api.lemonade.load import LemonadeLoadRequest, LoadPlanEntry, UnloadRequest, load_model, unload_model
from gateway.cli import output
from gateway.cli.api_client import MODELS_HINT, ApiClient
from gateway.cli.exit_codes import FAILED, CommandError
from gateway.cli.options import for_each_model, json_option, model_argument, option_value, parse_options, server_option
from gateway.cli.progress import ensure_downloaded

_CONTEXT: Final = "ctx_size"


@click.command(short_help="Load a model, or load it again with other options.")
@model_argument()
@click.option("--ctx-size", metavar="TOKENS", help="Context tokens of each request; auto: as many as fit.")
@click.option(
    "--option",
    "-o",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    callback=parse_options,
    help="An option of the model's recipe, such as llamacpp_args='--no-mmap'. Repeatable.",
)
@click.option("--save-options", is_flag=True, help="Also use these options in future loads.")
@click.option("--pin/--no-pin", default=None, help="Protect the model from eviction, or end the protection.")
@click.option(
    "--ttl",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Idle seconds after which the model is unloaded; 0: never. Applies until it is unloaded.",
)
@click.option("--dry-run", is_flag=True, help="Only show what a load would do: memory, models to unload, context.")
@json_option("the server's answer")
@server_option
def load(
    model: str,
    ctx_size: str | None,
    options: dict[str, Any],
    save_options: bool,
    pin: bool | None,
    ttl: float | None,
    dry_run: bool,
    as_json: bool,
    server: ApiClient,
) -> None:
    """Load MODEL, downloading it first if necessary, and wait until it is ready.

    A model that is loaded with the same options stays loaded. With other options, it is loaded again.
    """
    request = LemonadeLoadRequest(
        model_name=model, save_options=save_options or None, pinned=pin, ttl=ttl, dry_run=dry_run or None
    )
    more = options if ctx_size is None else {**options, _CONTEXT: option_value(ctx_size)}
    if not dry_run:
        ensure_downloaded(server, model)
    answer = server.ask(load_model, request, None, more)
    if as_json:
        output.print_json(answer)
    else:
        click.echo(output.plain(answer.message))
        if answer.plan is not None:
            _show_plan(answer.plan)
        elif answer.context:
            click.echo(f"Context: {answer.context} tokens of each request")
    if answer.plan is not None and answer.plan.decision == "refuse":
        raise Exit(FAILED)


def _show_plan(plan: LoadPlanEntry) -> None:
    """Print the memory of each place, what the need consists of, and what would be unloaded."""
    click.echo()
    output.table(
        ("PLACE", "NEED", "AVAILABLE", "FREE", "KEPT FREE", "TOTAL"),
        [
            (
                each.name or each.place,
                *map(output.size, (each.need, each.available, each.free, each.reserved, each.total)),
            )
            for each in plan.places
        ],
    )
    if plan.parts:
        parts = ", ".join(f"{name} {output.size(bytes_)}" for name, bytes_ in plan.parts.items() if bytes_)
        click.echo(f"\nNeed: {parts}{' (corrected by a former load)' if plan.measured else ''}")
    if plan.node:
        click.echo(f"Node: {output.plain(plan.node)}")
    if plan.context:
        click.echo(f"Context: {plan.context} tokens in each of {plan.slots} slots")
    if plan.evictions:
        click.echo()
        output.table(
            ("UNLOADED FIRST", "REASON", "IDLE FOR", "FREES"),
            [
                (
                    each.model,
                    each.reason,
                    "busy" if each.busy else "-" if each.idle_seconds is None else output.duration(each.idle_seconds),
                    ", ".join(f"{place} {output.size(bytes_)}" for place, bytes_ in each.frees.items() if bytes_)
                    or "?",
                )
                for each in plan.evictions
            ],
        )


@click.command(short_help="Unload models, or all of them.")
@model_argument(several=True, required=False)
@click.option("--all", "-a", "all_models", is_flag=True, help="Unload every model.")
@json_option("the server's answer about each model")
@server_option
def unload(models: tuple[str, ...], all_models: bool, as_json: bool, server: ApiClient) -> None:
    """Unload each MODEL once its running requests have ended, or all models with --all."""
    if bool(models) == all_models:
        raise click.UsageError("Name a MODEL, or use --all.")
    for_each_model(models or ("",), partial(_unload, server, as_json))


def _unload(server: ApiClient, as_json: bool, model: str) -> None:
    """Unload a model, or all if it is empty."""
    try:
        answer = server.ask(unload_model, UnloadRequest(model_name=model or None), seconds=None)
    except CommandError as problem:
        if problem.status != HTTPStatus.NOT_FOUND:
            raise
        # The API also says "not found" of a model that is known but not loaded.
        message = str(problem).removesuffix(MODELS_HINT).replace("not found", "not loaded", 1)
        message = f"{message}; `lemonbus ps` shows the loaded ones"
        raise CommandError(message, status=problem.status, facts=problem.facts) from problem
    if as_json:
        output.print_json(answer)
    elif model:
        click.echo(answer.message)
    else:
        unloaded = ", ".join(map(output.plain, answer.unloaded))
        click.echo(f"Unloaded: {unloaded}" if unloaded else "No model was loaded.")
