"""``/internal/nodes``: the machines of this server, and drains of single ones."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from gateway.api.common.node_entries import NodeEntry, node_entries, node_entry
from gateway.api.common.operations import CONFLICT, NOT_FOUND
from gateway.api.common.routes import HttpCaller, Nothing, route
from protocol.messages.node_reports import DrainNode, ListNodes, NodeReport, NodesReport


class NodesAnswer(msgspec.Struct):
    """The machines of this server, the head first."""

    nodes: list[NodeEntry]


class NamedNode(msgspec.Struct):
    """A node by its name."""

    name: Annotated[str, Meta(min_length=1)]


@route("GET", "/internal/nodes", changes=True, action="list the nodes")
def list_nodes(caller: HttpCaller, _request: Nothing) -> NodesAnswer:
    """Lists the machines of this server: what they have, what runs there, and which are not reachable.

    A server on one machine has only the node `head`.
    """
    report = caller.ask(ListNodes, NodesReport)
    return NodesAnswer(node_entries(report.nodes, detail=True))


@route("POST", "/internal/nodes/{name}/drain", changes=True, action="drain a node", failures=NOT_FOUND | CONFLICT)
def drain_node(caller: HttpCaller, node: NamedNode) -> NodeEntry:
    """Gives a node no new models from now on; those that it has are loaded on other nodes, and leave when their requests have ended.

    The answer comes at once: the node is `draining` until it has no model left, then `drained`. It stays so until an undrain or a
    restart of the server, even while it is not reachable. A second drain changes nothing.
    """
    return _drained(caller, node.name, drained=True)


@route("POST", "/internal/nodes/{name}/undrain", changes=True, action="undrain a node", failures=NOT_FOUND)
def undrain_node(caller: HttpCaller, node: NamedNode) -> NodeEntry:
    """Gives a node models again."""
    return _drained(caller, node.name, drained=False)


def _drained(caller: HttpCaller, name: str, *, drained: bool) -> NodeEntry:
    report = caller.ask(lambda number: DrainNode(number, name, drained), NodeReport)
    return node_entry(report, detail=True)
