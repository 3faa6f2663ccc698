"""The nodes of a server as answers show them, where it has more than one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from gateway.api.common.machine_memory import MemoryEntry, memory_entries
from protocol.messages.node_reports import NodeReport


class NodeEntry(msgspec.Struct):
    """A machine of the server. The one named `head` is where the supervisor runs."""

    name: str
    state: Literal["ready", "draining", "drained", "unreachable", "lost"]
    """With `draining` and `drained`, it gets no new models; `draining`: it still has some.

    `unreachable`: it does not answer at the moment; `lost`: for so long that what ran there counts as ended.
    """
    age_seconds: float
    """How long it has been in this state; of a node that is drained: since an operator or its agent said so."""
    address: str
    """For administrators: where other nodes reach it."""
    cpus: int
    devices: list[str]
    """The kinds of its devices."""
    backends: list[str]
    """What can run there, each `RECIPE:BACKEND`."""
    labels: dict[str, str]
    resources: dict[str, float]
    """Custom resources that the cluster engine counts."""
    memory: list[MemoryEntry]
    """Of the node and of each of its devices with memory of its own, as it was read last."""
    models: list[str]
    """Those that it has or loads."""
    workers: int
    drained: bool
    """Whether an operator has drained it. It stays so while it is lost, until an undrain or a restart of the server."""
    reason: str
    """Why it drains although no operator has said so: its agent was told to end."""


def node_entry(report: NodeReport, *, detail: bool) -> NodeEntry:
    """Return a node as answers show it. ``detail``: with what only administrators may read."""
    facts = report.facts
    return NodeEntry(
        name=facts.name,
        state=report.state.value,
        age_seconds=round(report.age, 3),
        address=facts.address if detail else "",
        cpus=facts.cpus,
        devices=facts.devices,
        backends=facts.backends,
        labels=facts.labels,
        resources=facts.resources,
        memory=memory_entries(report.memory, detail=detail),
        models=report.models,
        workers=report.workers,
        drained=report.drained,
        reason=report.reason,
    )


def node_entries(reports: Iterable[NodeReport], *, detail: bool) -> list[NodeEntry]:
    """Return all nodes as answers show them."""
    return [node_entry(each, detail=detail) for each in reports]
