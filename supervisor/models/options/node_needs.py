"""What a model demands of the node that runs it, and what may run it there: from its recipe, its options and its section. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import structs

from protocol.config.model_settings import ModelSettings
from protocol.models.nodes import HEAD, NodeNeeds
from protocol.models.recipes import BackendDescriptor, NodeBackend, RecipeDescriptor


class NodeDemands(NamedTuple):
    """What a spec says about nodes."""

    needs: NodeNeeds = NodeNeeds()
    backends: Sequence[NodeBackend] = ()


def node_demands(
    descriptor: RecipeDescriptor, chosen: BackendDescriptor | None, configured: ModelSettings, *, several_nodes: bool
) -> NodeDemands:
    """Return what a model demands of its node. ``chosen``: the backend that its options name, None if they leave it open.

    A backend is only installed where its devices are, so they are not demanded besides. A program of the operator's own is
    on the head, unless the section of the model names the nodes that have it. On a server with one node, only what the
    section says can make a difference.
    """
    if descriptor.elsewhere:
        return NodeDemands()
    needs = NodeNeeds(
        nodes=configured.nodes, labels=dict(configured.node_labels), resources=dict(configured.node_resources)
    )
    if not several_nodes:
        return NodeDemands(needs)
    if configured.command:
        return NodeDemands(structs.replace(needs, nodes=needs.nodes or [HEAD]))
    backends = [chosen] if chosen is not None else descriptor.backends
    return NodeDemands(
        structs.replace(needs, backends=[f"{descriptor.recipe}:{backend.name}" for backend in backends]),
        [NodeBackend(backend.name, descriptor.shown_device or backend.device, backend.npu) for backend in backends],
    )
