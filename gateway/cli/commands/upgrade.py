"""``lemonbus upgrade``: lets the installed release take over from the running one."""

from __future__ import annotations

import time
from typing import Final

import click
import msgspec

from gateway.api.common.routes import Nothing
from gateway.api.operator.upgrade import UpgradeAnswer, UpgradeRequest, show_upgrade, upgrade_server
from gateway.cli import output
from gateway.cli.api_client import ApiClient
from gateway.cli.exit_codes import CommandError
from gateway.cli.options import json_option, server_option

_TIMEOUT_S: Final = 120.0
"""How long the new release may take from its first process to its first answer."""
_INTERVAL_S: Final = 0.2
_NOT_YET: Final = frozenset({0, 502, 503, 504})
"""Statuses of a server that will answer later; 0: it has closed the connection."""
_OTHER_PROTOCOL: Final = (
    "lemonbus: the releases speak different versions of the protocol: requests that waited were answered 503 with"
    " Retry-After, and each model is loaded again when its last request has ended."
)


@click.command("upgrade", short_help="Switch to the installed release, without a restart.")
@json_option("the server's answer")
@server_option
def command(as_json: bool, server: ApiClient) -> None:
    """Let the installed release take over, after `pip install -U`.

    Models stay loaded, and answers in progress are not interrupted. If the new release cannot start, the running one
    goes on and nothing changes.

    If the releases speak different versions of the protocol, the command says so: waiting requests are answered 503
    with `Retry-After`, and each model is loaded again when its last request has ended.
    """
    answer = server.ask(upgrade_server, UpgradeRequest(), seconds=None)
    other_protocol = answer.status == "taking_over"
    if other_protocol:
        answer = msgspec.structs.replace(_wait(server), former_release=answer.former_release)
    if as_json:
        output.print_json(answer)
    else:
        click.echo(_result(answer))
    if other_protocol:
        click.echo(_OTHER_PROTOCOL, err=True)


def _result(answer: UpgradeAnswer) -> str:
    """Return what serves now, and what served when the upgrade was requested."""
    release, former = output.plain(answer.release or ""), output.plain(answer.former_release or "")
    if former == release:
        return (
            f"Release {release} serves, with the files that are installed now. The former release had the same version."
        )
    return f"Release {release} serves." + (f" The former release was {former}." if former else "")


def _wait(server: ApiClient) -> UpgradeAnswer:
    """Return the answer of the release that serves in the end; raises ``CommandError`` if the upgrade has failed.

    Until processes of the new release have replaced the ones that were asked first, these refuse or hang up, and a
    proxy answers 502 or 504.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            answer = server.ask(show_upgrade, Nothing())
        except CommandError as problem:
            if problem.status not in _NOT_YET:
                raise
            last = problem
        else:
            if answer.status == "success":
                return answer
            last = CommandError("the new release does not answer yet")
        if time.monotonic() >= deadline:
            raise CommandError(
                f"the new release takes over, but has not answered for {_TIMEOUT_S:.0f} s; "
                f"the server's log says why. The last answer: {last}"
            ) from last
        time.sleep(_INTERVAL_S)
