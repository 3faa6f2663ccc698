"""``lemonbus top``: shows the running server as it changes."""

from __future__ import annotations

import sys
import threading

import click
import msgspec

from gateway.api.common.routes import Nothing
from gateway.api.operator.overview import show_overview
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.options import json_option, server_option
from gateway.overview.view import Overview


@click.command("top", short_help="Watch the server: models, queues, requests, deaths.")
@click.option("--once", is_flag=True, help="Print it once, as without a terminal.")
@json_option("the overview each second, one object a line")
@server_option
def command(once: bool, as_json: bool, server: ApiClient) -> None:
    """Watch the running server: models with what they do, who waits, requests in flight, the last ones that ended.

    On a terminal, it is shown as it changes. q quits; arrows, Page Up and Page Down scroll; other keys sort the models by what
    needs attention (a), waiting (w) or running (r) requests, tokens per second (t), first token (f), memory (m), last use (u) or
    name (n). It goes on when the server restarts. With NO_COLOR, it has no colours.
    """
    if as_json and not once:
        _print_states(server)
        return
    overview = server.ask(show_overview, Nothing())
    if as_json:
        output.print_json(overview)
    elif once or not (sys.stdin.isatty() and output.is_terminal()):
        _print(overview, server)
    else:
        from gateway.cli.live.feed import State  # noqa: PLC0415 - only this form of the command follows the server
        from gateway.cli.live.viewer import watch  # noqa: PLC0415

        watch(server, State(msgspec.to_builtins(overview)))


def _print(overview: Overview, server: ApiClient) -> None:
    from gateway.cli.live.sections import headline, sections_of  # noqa: PLC0415 - as above
    from gateway.cli.live.words import NO_MODEL  # noqa: PLC0415

    for line in headline(overview, server.url, overview.time):
        click.echo(output.plain(line))
    for section in sections_of(overview, overview.time):
        click.echo(f"\n{section.title}".rstrip() if section.title else "")
        if section.rows:
            output.table(section.head, section.rows)
        else:
            click.echo(NO_MODEL)


def _print_states(server: ApiClient) -> None:
    from gateway.cli.live.feed import follow_states  # noqa: PLC0415 - as above

    for state in follow_states(server, threading.Event()):
        if state.problem:
            click.echo(f"lemonbus: {output.plain(state.problem)}; waiting for the server", err=True)
        else:
            click.echo(output.json_text(state.fields))
