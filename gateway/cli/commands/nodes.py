"""``lemonbus nodes``: the machines of a server, and drains of single ones."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import click
from click.shell_completion import CompletionItem
from msgspec.structs import replace

from gateway.api.common.node_entries import NodeEntry
from gateway.api.common.routes import Nothing
from gateway.api.operator.nodes import NamedNode, drain_node, list_nodes, undrain_node
from gateway.cli import output, polling
from gateway.cli.api_client import ApiClient
from gateway.cli.exit_codes import INTERRUPTED, CommandError
from gateway.cli.options import connect_client, given_url, json_option, server_option
from gateway.cli.settings import config_option, resolved
from protocol.config.cluster_keys import ensure_cluster_keys
from protocol.failures import LemonbusError
from protocol.wire.bus_address import encode_token


@click.group("nodes", invoke_without_command=True, short_help="List the machines of the server, or drain one.")
@json_option("the server's answer")
@server_option
@click.pass_context
def command(context: click.Context, as_json: bool, server: ApiClient) -> None:
    """List the machines of the server: what they have, what runs there, and which are not reachable."""
    if context.invoked_subcommand is not None:
        return
    nodes = server.ask(list_nodes, Nothing()).nodes
    if as_json:
        output.print_json(nodes)
    else:
        output.node_table(nodes)


def _complete_node(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem | str]:
    """Return the names of nodes that begin with ``incomplete``, as the server knows them."""
    server = context.params.get("server") or connect_client(given_url(context))
    try:
        nodes = server.ask(list_nodes, Nothing(), seconds=1.0).nodes
    except CommandError:
        return []  # a completion must not print an error
    return [node.name for node in nodes if node.name.startswith(incomplete)]


@command.command()
@click.argument("name", shell_complete=_complete_node)
@click.option("--no-wait", is_flag=True, help="Do not wait until the node has no model left.")
@click.option("--timeout", type=click.FloatRange(min=0), help="Give up waiting after this many seconds, and fail.")
@json_option("the node at the end")
@server_option
def drain(name: str, no_wait: bool, timeout: float | None, as_json: bool, server: ApiClient) -> None:
    """Give the node NAME no new models, and wait until those that it has were loaded elsewhere or have ended.

    Running requests end as usual. The node stays drained until `lemonbus nodes undrain` or a restart of the server, even if the wait
    is interrupted or gives up. A second drain changes nothing, and waits again.
    """
    if timeout is not None and no_wait:
        raise click.UsageError("--timeout contradicts --no-wait")
    node = server.ask(drain_node, NamedNode(name))
    if not no_wait:
        try:
            node = _wait(server, node, timeout)
        except KeyboardInterrupt:
            stays = f"interrupted; the node stays drained until `lemonbus nodes undrain {name}`"
            raise CommandError(stays, INTERRUPTED) from None
    _show(node, as_json)


@command.command()
@click.argument("name", shell_complete=_complete_node)
@json_option("the node")
@server_option
def undrain(name: str, as_json: bool, server: ApiClient) -> None:
    """Give the node NAME models again."""
    _show(server.ask(undrain_node, NamedNode(name)), as_json)


@command.command()
@config_option
@click.option("--state-dir", type=click.Path(file_okay=False), metavar="DIR", help="State directory of the server.")
def token(config: str, state_dir: str | None) -> None:
    """Print the token with which `lemonbus gateway` joins the server from another machine.

    Run this on the head, as a user who may read the server's state directory. A process with the token is trusted
    like the server itself: it can read requests, and answer them.
    """
    folder = Path(resolved({"state_dir": state_dir}, config).settings.state_dir)
    try:
        click.echo(encode_token(ensure_cluster_keys(folder).of_member()))
    except OSError as problem:
        raise CommandError(f"{folder} cannot be used: {problem.strerror}") from problem
    except LemonbusError as problem:
        raise CommandError(str(problem)) from problem


def _show(node: NodeEntry, as_json: bool) -> None:
    if as_json:
        output.print_json(node)
    elif node.state == "lost":
        kept = ", and stays drained when it comes back" if node.drained else ""
        click.echo(f"Node {output.plain(node.name)} is not reachable{kept}.")
    elif node.drained or node.reason:
        click.echo(f"Node {output.plain(node.name)} gets no new models; {_left(node)}.")
    else:
        click.echo(f"Node {output.plain(node.name)} gets models again.")


def _left(node: NodeEntry) -> str:
    return f"it still has {', '.join(map(output.plain, node.models))}" if node.models else "it has none left"


def _wait(server: ApiClient, node: NodeEntry, timeout: float | None) -> NodeEntry:
    """Return a node that has no model left, and say on stderr which ones it has; raises ``CommandError`` if that takes too long."""

    def ask() -> NodeEntry:
        nodes = server.ask(list_nodes, Nothing()).nodes
        return next((each for each in nodes if each.name == node.name), replace(node, state="lost", models=[]))

    shown = ""
    for polled in chain([node], polling.answers(ask, timeout)):
        if polled is None:
            continue
        node = polled
        if not node.drained:
            raise CommandError(f"the node {node.name} was undrained meanwhile")
        if not node.models:
            return node
        if _left(node) != shown:
            shown = _left(node)
            click.echo(f"Node {output.plain(node.name)}: {shown}", err=True)
    raise CommandError(f"after {timeout:g} s, node {node.name} still has {', '.join(node.models)}; it stays drained")
