"""``lemonbus logs``: shows the log lines of all processes, engines included, in one stream."""

from __future__ import annotations

import re
import threading
from datetime import datetime
from typing import Any, Final

import click

from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.exit_codes import UNREACHABLE, CommandError
from gateway.cli.log_filter import LogFilter, compile_pattern, moment_of, parse_moment
from gateway.cli.options import complete_model, json_option, server_option
from protocol.config.settings import LOG_LEVELS

COLOURS: Final = {"Warning": "yellow", "Error": "red", "Fatal": "red"}
DIMMED: Final = ("Debug", "Trace")
_OLDER: Final = "older lines are only in its stderr; for a systemd unit: journalctl -u lemonbus"
PROCESSES: Final = ("supervisor", "gateway", "worker", "engine", "job", "agent")


def _moment(_context: click.Context, _parameter: click.Parameter, text: str | None) -> datetime | None:
    try:
        return None if text is None else parse_moment(text, datetime.now().astimezone())
    except ValueError as problem:
        raise click.BadParameter(f"{text!r} is not a time such as 10m, 10:00 or 2031-05-01T10:00.") from problem


def _pattern(_context: click.Context, _parameter: click.Parameter, text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else compile_pattern(text)
    except re.error as problem:
        raise click.BadParameter(f"{text!r} is not a regular expression: {problem}.") from problem


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
@click.option(
    "--node", default="", metavar="NAME", help="Only lines of or about this machine, if the server has several."
)
@click.option(
    "--since",
    callback=_moment,
    metavar="TIME",
    help="From then on: 10m or 2h ago; 10:00, yesterday, 2031-05-01T10:00, of this machine's zone; 10:00Z, as the lines show it.",
)
@click.option("--until", callback=_moment, metavar="TIME", help="Up to then.")
@click.option(
    "--grep",
    "-g",
    "pattern",
    callback=_pattern,
    metavar="REGEX",
    help="Only lines that contain it. Without capital letters, it also matches capital ones.",
)
@click.option("--tail", "-n", type=click.IntRange(min=0), metavar="N", help="Only the last N of these lines.")
@json_option("every entry as one line of JSON")
@server_option
def command(
    follow: bool,
    model: str,
    request_id: str,
    level: str | None,
    process: str | None,
    node: str,
    since: datetime | None,
    until: datetime | None,
    pattern: re.Pattern[str] | None,
    tail: int | None,
    as_json: bool,
    server: ApiClient,
) -> None:
    """Show the retained log lines of all processes, and with -f new ones as they come.

    The server retains the last 5,000 lines since its present supervisor took over, at most 3 MiB.
    """
    from gateway.cli.log_follower import ConnectionLostError, LogFollower  # noqa: PLC0415 - slow to import

    if follow and until is not None:
        raise click.UsageError("--until ends the log: leave out --follow.")
    given = {"model": model, "request_id": request_id, "level": level, "process": process, "node": node}
    filters = {key: value for key, value in given.items() if value}
    wanted = LogFilter(since, until, pattern)
    follower = LogFollower(server, filters, _warn)
    try:
        entries = [entry for entry in follower.snapshot() if wanted.matches(entry)]
        for entry in entries if tail is None else entries[max(0, len(entries) - tail) :]:
            _show(entry, as_json)
        begin = moment_of(follower.retained_since)
        if since is not None and begin is not None and since < begin:
            _warn(f"the retained lines begin at {begin:%Y-%m-%d %H:%M:%S}Z; {_OLDER}")
        if (filters or any(wanted)) and not entries and not follow:
            names = "; models are logged by their registered names" if model else ""
            _warn(
                f"no retained line matches{names}. The server retains the lines since its supervisor took over; {_OLDER}"
            )
        for entry in follower.follow(threading.Event()) if follow else ():
            if wanted.matches(entry):
                _show(entry, as_json)
    except ConnectionLostError as problem:
        raise CommandError("the connection to the server broke off", UNREACHABLE) from problem


def _warn(text: str) -> None:
    click.echo(f"lemonbus: {text}", err=True)


def _show(entry: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(output.json_text(entry))
    else:
        severity = entry.get("severity", "")
        click.secho(output.plain(str(entry["line"])), fg=COLOURS.get(severity), dim=severity in DIMMED or None)
