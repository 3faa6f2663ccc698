"""``lemonbus drain`` and ``undrain``: let the server take no new requests, or take them again."""

from __future__ import annotations

from itertools import chain
from typing import Final

import click

from gateway.api.common.routes import Nothing
from gateway.api.operator.drain import DrainAnswer, DrainRequest, drain_server, show_drain, undrain_server
from gateway.cli import output, polling
from gateway.cli.api_client import ApiClient
from gateway.cli.exit_codes import INTERRUPTED, CommandError
from gateway.cli.options import json_option, server_option

_IDLE_POLLS: Final = 2
"""How often in a row nothing must run: between an engine's death and the second attempt at a request, nothing does."""


@click.command(short_help="Take no new requests; let running ones end.")
@click.option("--wait", is_flag=True, help="Wait until no request runs or waits.")
@click.option("--timeout", type=click.FloatRange(min=0), help="Give up waiting after this many seconds, and fail.")
@json_option("the server's answer")
@server_option
def drain(wait: bool, timeout: float | None, as_json: bool, server: ApiClient) -> None:
    """Take no new requests: they are refused with 503 `drained`, and `/readyz` is 503.

    Requests that were accepted before end as usual. All other commands still work. The server stays drained until
    `lemonbus undrain` or a restart, even if `--wait` is interrupted or gives up.
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout needs --wait")
    answer = server.ask(drain_server, DrainRequest())
    if wait:
        try:
            answer = _wait(server, answer, timeout)
        except KeyboardInterrupt:
            raise CommandError("interrupted; the server stays drained until `lemonbus undrain`", INTERRUPTED) from None
    _show(answer, as_json)


@click.command(short_help="Take new requests again after a drain.")
@json_option("the server's answer")
@server_option
def undrain(as_json: bool, server: ApiClient) -> None:
    """Take new requests again."""
    _show(server.ask(undrain_server, DrainRequest()), as_json)


def _show(answer: DrainAnswer, as_json: bool) -> None:
    if as_json:
        output.print_json(answer)
    elif answer.drained:
        click.echo(f"The server takes no new requests; {answer.running} run, {answer.queued} wait.")
    else:
        click.echo("The server takes new requests.")


def _wait(server: ApiClient, answer: DrainAnswer, timeout: float | None) -> DrainAnswer:
    """Return the answer of a server that has no request left; raises ``CommandError`` if that takes too long."""
    idle = 0
    for polled in chain([answer], polling.answers(lambda: server.ask(show_drain, Nothing()), timeout)):
        if polled is None:
            idle = 0
            continue
        answer = polled
        if not answer.drained:
            raise CommandError("the server was undrained meanwhile")
        idle = 0 if answer.running or answer.queued else idle + 1
        if idle >= _IDLE_POLLS:
            return answer
    raise CommandError(
        f"after {timeout:g} s, {answer.running} still run, {answer.queued} wait; the server stays drained"
    )
