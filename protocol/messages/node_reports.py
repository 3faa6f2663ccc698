"""What is reported of each machine of a server, and the calls that list and drain them."""

from __future__ import annotations

import enum

import msgspec

from protocol.messages.calls import repeated_call
from protocol.models.memory import Capacity
from protocol.models.nodes import NodeFacts
from protocol.times import Age


class NodeState(enum.StrEnum):
    """What a node does for the server."""

    READY = "ready"
    DRAINING = "draining"
    """An operator drains it, or its agent is about to end: it gets no new models, and those that it has move or end."""
    DRAINED = "drained"
    """The same, and it has none left."""
    UNREACHABLE = "unreachable"
    """Its agent does not answer, but may answer again in time."""
    LOST = "lost"
    """Its agent has not answered for too long. What ran there counts as ended."""


class NodeReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node at one moment."""

    facts: NodeFacts
    state: NodeState
    age: Age = 0.0
    """How long it has been in this state; of a node that is drained: since an operator or its agent said so."""
    memory: list[Capacity] = []
    """As it was read last; empty if it never was, or the node is lost."""
    models: list[str] = []
    """The registered names of those that it has or loads."""
    workers: int = 0
    drained: bool = False
    """Whether an operator has drained it; it stays so while it is lost."""
    reason: str = ""
    """Why it drains although no operator has said so, as a clause: ``its agent was told to end``."""


class NodesReport(msgspec.Struct, frozen=True):
    """The head first, then the others by name."""

    nodes: list[NodeReport]


@repeated_call
class ListNodes(msgspec.Struct, frozen=True):
    """→ :class:`NodesReport`."""

    number: int


@repeated_call
class DrainNode(msgspec.Struct, frozen=True):
    """→ :class:`NodeReport`. A drained node gets no new models, and those that it has move or end; ``not_found`` if there is none.

    This outlives the supervisor, and the loss of the node.
    """

    number: int
    node: str
    drained: bool
    """False: it gets models again."""
