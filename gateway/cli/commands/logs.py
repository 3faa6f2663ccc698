"""``lemonbus logs``: shows the log lines of all processes, engines included, in one stream."""

from __future__ import annotations

import threading
from typing import Final

import click

from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.exit_codes import UNREACHABLE, CommandError
from gateway.cli.options import complete_model, json_option, server_option
from protocol.config.settings import LOG_LEVELS

COLOURS: Final = {"Warning": "yellow", "Error": "red", "Fatal": "red"}
DIMMED: Final = ("Debug", "Trace")
_OLDER: Final = (
    "The server retains the lines since the present supervisor took over; older lines are only in its stderr."
)
PROCESSES: Final = ("supervisor", "gateway", "worker", "engine", "job")


@click.command("logs", short_help="Show the logs of all processes.")
@click.option("--follow", "-f", is_flag=True, help="Continue with new lines, also after a restart of the server.")
@click.option(
    "--model",
    default="",
    metavar="NAME",
    help="Only lines about this model, by its registered name.",
    shell_complete=complete_model,
)
@click.option("--request", "request_id", default="", metavar="ID", help="Only lines of this request (X-Request-ID).")
@click.option(
    "--level",
    type=click.Choice(LOG_LEVELS),
    metavar="LEVEL",
    help="This level and above: " + ", ".join(LOG_LEVELS) + ".",
)
@click.option(
    "--process",
    type=click.Choice(PROCESSES, case_sensitive=False),
    metavar="NAME",
    help="Only lines of these processes: " + ", ".join(PROCESSES) + ".",
)
@click.option("--tail", "-n", type=click.IntRange(min=0), metavar="N", help="Only the last N of the retained lines.")
@json_option("every entry as one line of JSON")
@server_option
def command(
    follow: bool,
    model: str,
    request_id: str,
    level: str | None,
    process: str | None,
    tail: int | None,
    as_json: bool,
    server: ApiClient,
) -> None:
    """Show the retained log lines of all processes, and with -f new ones as they come."""
    from gateway.cli.log_follower import ConnectionLostError, Entry, LogFollower  # noqa: PLC0415 - slow to import

    def show(entry: Entry) -> None:
        if as_json:
            click.echo(output.json_text(entry))
        else:
            severity = entry.get("severity", "")
            click.secho(output.plain(str(entry["line"])), fg=COLOURS.get(severity), dim=severity in DIMMED or None)

    given = {"model": model, "request_id": request_id, "level": level, "process": process}
    filters = {key: value for key, value in given.items() if value}
    follower = LogFollower(
        server,
        filters,
        lambda text: click.echo(f"lemonbus: {text}", err=True),
    )
    try:
        entries = follower.snapshot()
        for entry in entries if tail is None else entries[max(0, len(entries) - tail) :]:
            show(entry)
        if filters and not entries and not follow:
            names = "; models are logged by their registered names" if model else ""
            click.echo(f"lemonbus: no retained line matches{names}. {_OLDER}", err=True)
        if follow:
            for entry in follower.follow(threading.Event()):
                show(entry)
    except ConnectionLostError as problem:
        raise CommandError("the connection to the server broke off", UNREACHABLE) from problem
