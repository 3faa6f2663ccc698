"""``lemonbus gateway``: serves the HTTP of a server from another machine than its head."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import click

from gateway.cli.exit_codes import USAGE, CommandError
from protocol.config.fields import setting_fields
from protocol.config.gateway_settings import GatewaySettings, export
from protocol.config.settings import default_runtime_dir
from protocol.models.nodes import why_no_node_name
from protocol.wire.bus_address import ClusterMembership, decode_token, split_address

_TCP = "tcp://"


@click.command("gateway", short_help="Serve clients from another machine.")
@click.option(
    "--supervisor", required=True, metavar="tcp://HOST:PORT", help="The cluster_address of the server's head."
)
@click.option("--token", default="", metavar="TOKEN", help="What `lemonbus nodes token` prints there.")
@click.option("--token-file", type=click.Path(dir_okay=False), metavar="FILE", help="File that has the token.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="TEXT", help="Address to bind.")
@click.option("--port", type=int, default=13305, show_default=True, metavar="N", help="Port to listen on.")
@click.option(
    "--name", default="", metavar="NAME", help="Name of this machine in the server; its host name by default."
)
@click.option("--gateway-workers", type=int, default=0, metavar="N", help="Processes; 0: one for every two processors.")
@click.option("--runtime-dir", default="", metavar="DIR", help="Directory for this gateway's own files.")
def command(
    supervisor: str,
    token: str,
    token_file: str | None,
    host: str,
    port: int,
    name: str,
    gateway_workers: int,
    runtime_dir: str,
) -> None:
    """Serve the clients of a server whose models run on other machines, and stay in the foreground until SIGTERM.

    API keys, limits and all other settings are those of the server. Several gateways can be behind one balancer. Without --token,
    LEMONBUS_TOKEN is used, which other users of this machine cannot see.
    """
    address = supervisor.removeprefix(_TCP)
    given = _token(token, token_file)
    try:
        split_address(address)
        membership = ClusterMembership(address, decode_token(given))
    except ValueError as problem:
        raise CommandError(str(problem), USAGE) from problem
    node = name or socket.gethostname()
    if why := why_no_node_name(node):
        raise CommandError(f"{'--name' if name else 'the host name, without --name'}: {why}", USAGE)
    values = {"host": host, "port": port, "gateway_workers": gateway_workers}
    for setting, value in values.items():
        _check(setting, str(value))
    runtime = str(Path(runtime_dir or f"{default_runtime_dir()}-gateway").absolute())
    settings = GatewaySettings(membership, node, host, port, runtime, gateway_workers)
    os.environ.pop(_TOKEN_VARIABLE, None)
    os.environ.update(export(settings))
    if sys.stdout is not None:  # it is None if the descriptor is closed
        sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "supervisor.gateway_host"])  # noqa: S606 - our own module, no shell


_TOKEN_VARIABLE = "LEMONBUS_TOKEN"  # noqa: S105 - the name of a variable


def _token(given: str, file: str | None) -> str:
    if given and file:
        raise click.UsageError("--token contradicts --token-file")
    if file:
        try:
            return Path(file).read_text()
        except (OSError, ValueError) as problem:
            raise CommandError(f"--token-file {file} cannot be read: {problem}", USAGE) from problem
    found = given or os.environ.get(_TOKEN_VARIABLE, "")
    if not found:
        raise click.UsageError("a token is needed: --token, --token-file or LEMONBUS_TOKEN")
    return found


def _check(setting: str, text: str) -> None:
    field = setting_fields()[setting]
    try:
        field.parse_text(text)
    except ValueError as problem:
        raise CommandError(f"{field.flag}: must be {field.expected}, not {text}", USAGE) from problem
