"""The machines that reports name: none on a server on one machine, which therefore imports nothing about others."""

from __future__ import annotations

from typing import Protocol

from protocol.messages.node_reports import NodeReport


class ReportedNodes(Protocol):
    """What reports ask of nodes; :class:`supervisor.handlers.nodes.NodeReports` knows the nodes of a cluster."""

    def several(self) -> list[NodeReport]:
        """Return all nodes of a server that has more than one; else none, without a look at anything."""

    def node_of(self, worker: str) -> str:
        """Return the node of a worker of a server that has more than one; else nothing."""

    def problems(self) -> list[str]:
        """Return which nodes are missing, as sentences."""


class OneMachine:
    """The nodes of a server that cannot have others than the head."""

    def several(self) -> list[NodeReport]:
        """Return none."""
        return []

    def node_of(self, worker: str) -> str:  # noqa: ARG002 - all run on this machine
        """Return nothing."""
        return ""

    def problems(self) -> list[str]:
        """Return none."""
        return []
