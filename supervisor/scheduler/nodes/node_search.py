"""Where a model that is to be loaded will be loaded, as long as it has no engine."""

from __future__ import annotations

import math
from typing import NamedTuple

from protocol.failures import Failure
from protocol.models.memory import MemoryEstimate
from protocol.models.recipes import ModelSpec


class CheckedNeed(NamedTuple):
    """What a check of a model on a node has found."""

    spec: ModelSpec
    estimate: MemoryEstimate


class FailedCopy(NamedTuple):
    """Why the files of a model did not reach a node, and until when that is not tried again."""

    failure: Failure
    until: float


class SuitedNodes(NamedTuple):
    """The nodes that have what a spec demands, among those of the server at some time."""

    spec: ModelSpec
    nodes_version: int
    names: list[str]


class NodeSearch:
    """The node that was chosen for a model, and what its choice depends on."""

    __slots__ = ("checks", "compared_at", "compares", "failed_copies", "node", "suited", "waits_since")

    def __init__(self) -> None:
        """No node was chosen yet."""
        self.node = ""
        """The node where it is checked or loaded next; empty before the choice."""
        self.waits_since: float | None = None
        """Since when the choice waits for the memory of nodes to be read; None if it does not."""
        self.compares = False
        """Whether it does not fit where it was checked, so that it is compared with other nodes."""
        self.compared_at = -math.inf
        """When the other nodes were looked at last."""
        self.checks: dict[str, CheckedNeed] = {}
        """By node: what the last check there has found."""
        self.failed_copies: dict[str, FailedCopy] = {}
        """By node."""
        self.suited: SuitedNodes | None = None
        """Those that were found last."""

    def over(self) -> None:
        """Its engine is started, or nothing wants it any more: the next load chooses anew."""
        self.node = ""
        self.waits_since = None
        self.compares = False
        self.compared_at = -math.inf

    def forget(self, node: str) -> bool:
        """A node is gone. Return whether anything was known of it: then a choice may be another one."""
        known = [self.checks.pop(node, None), self.failed_copies.pop(node, None)]
        if self.node == node:
            self.over()
            return True
        return known != [None, None]

    def estimate_on(self, node: str, spec: ModelSpec) -> MemoryEstimate | None:
        """Return what a check of this spec on a node has found; None if it was not checked there."""
        found = self.checks.get(node)
        return found.estimate if found is not None and found.spec == spec else None
