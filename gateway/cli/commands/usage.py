"""``lemonbus usage``: who has used what, by API key, model and day."""

from __future__ import annotations

import csv
import sys
from typing import Final

import click
import msgspec

from gateway.api.operator.usage import UsageAnswer, UsageFigures, UsageQuery, show_usage
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.options import json_option, server_option

_COLUMNS: Final = (
    *("requests", "errors", "refusals", "cancelled", "prompt_tokens", "cached_tokens", "output_tokens"),
    "engine_seconds",
)


@click.command("usage", short_help="Show who has used what.")
@click.option("--key", metavar="NAME", help="Of one API key; '' is the requests without a key.")
@click.option("--model", metavar="NAME", help="Of one model, by its registered name.")
@click.option("--since", metavar="DAY", help="From this day on, in UTC: 2031-05-01. Default: this month.")
@click.option("--month", metavar="MONTH", help="Of this month: 2031-05.")
@click.option("--csv", "as_csv", is_flag=True, help="Print a line for each day, key and model, for spreadsheets.")
@json_option("the server's answer")
@server_option
def command(
    key: str | None,
    model: str | None,
    since: str | None,
    month: str | None,
    as_csv: bool,
    as_json: bool,
    server: ApiClient,
) -> None:
    """Show tokens, engine time, requests and failures by API key and model.

    --csv and --json have a row for each day. An administrator sees all keys, and any other key its own usage.
    """
    if as_csv and as_json:
        raise click.UsageError("Give either --csv or --json.")
    if since and month:
        raise click.UsageError("Give either --since or --month.")
    answer = server.ask(show_usage, UsageQuery(key, model, since, month, None if as_csv or as_json else False))
    if as_json:
        output.print_json(answer)
    elif as_csv:
        _print_csv(answer)
    else:
        _print_table(answer)
    if answer.problem:
        click.echo(f"lemonbus: {output.plain(answer.problem)}", err=True)


def _print_csv(answer: UsageAnswer) -> None:
    lines = csv.writer(sys.stdout, lineterminator="\n")
    lines.writerow(("day", "key", "model", *_COLUMNS))
    for row in answer.rows:
        lines.writerow((row.day, _cell(row.key), _cell(row.model), *_figures(row)))


def _cell(text: str) -> str:
    """Return text that no spreadsheet takes for a formula."""
    plain = output.plain(text)
    return f"'{plain}" if plain.lstrip().startswith(("=", "+", "-", "@")) else plain


def _print_table(answer: UsageAnswer) -> None:
    """Print a row for each key and model, the one with most tokens first, and a last one for all."""
    sums: dict[tuple[str, str], list[float]] = {}
    for row in answer.rows:
        present = sums.get((row.key, row.model), [0] * len(_COLUMNS))
        sums[row.key, row.model] = [have + more for have, more in zip(present, _figures(row), strict=True)]
    by_tokens = sorted(sums.items(), key=lambda item: -item[1][4] - item[1][6])
    rows = [(key or "-", model or "-", *map(_shown, figures)) for (key, model), figures in by_tokens]
    head = ("KEY", "MODEL", "REQUESTS", "ERRORS", "REFUSED", "CANCELLED", "PROMPT", "CACHED", "OUTPUT", "ENGINE S")
    output.table(head, [*rows, ("total", "", *map(_shown, _figures(answer.total)))])
    click.echo(f"From {answer.first_day} to {answer.last_day}, in UTC.", err=True)


def _figures(row: UsageFigures) -> list[float]:
    fields = msgspec.structs.asdict(row)
    return [fields[name] for name in _COLUMNS]


def _shown(figure: float) -> str:
    return f"{figure:.1f}" if isinstance(figure, float) else str(figure)
