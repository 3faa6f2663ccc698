"""``system-stats``: how busy the machine is now, with Lemonade's names and units, and what each place and node says of it."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from gateway.api.common.machine_memory import MemoryEntry, memory_entries
from gateway.api.common.routes import HttpCaller, Nothing, route
from protocol.messages.node_reports import NodeReport
from protocol.messages.system_info import GetSystemStats, MachineUsage
from protocol.models.memory import HOST
from protocol.models.nodes import HEAD

_GIBI: Final = 1 << 30


class MachineUse(msgspec.Struct, kw_only=True):
    """The present use of a machine. A value that it does not tell is null."""

    cpu_percent: float | None = None
    """The use of all processors together, from 0 to 100."""
    memory_gb: float | None
    """Main memory in use, in GiB. Files that processes have mapped, such as models, count."""
    gpu_percent: float | None
    """The use of the busiest graphics card."""
    vram_gb: float | None
    """Memory in use on graphics cards that have their own, in GiB, all together."""
    npu_percent: None = None
    """Always null: the driver of AMD's neural processors for Linux does not tell."""


class NodeUse(MachineUse, kw_only=True):
    """The same of one machine of a server that has several. What only its own kernel tells is null."""

    node: str
    state: str


class SystemStatsAnswer(MachineUse, kw_only=True):
    """The use of the machine that has the supervisor."""

    memory: list[MemoryEntry]
    """Each place with memory: the host, and each device that has its own."""
    nodes: list[NodeUse] | UnsetType = UNSET
    """All machines, if the server has several."""


@route("GET", "system-stats", monitors=True)
def show_system_stats(caller: HttpCaller, _request: Nothing) -> SystemStatsAnswer:
    """Shows how busy the machine is now.

    A first request waits for a quarter of a second, because the use of processors is measured between two moments.
    """
    stats = caller.ask(GetSystemStats, MachineUsage)
    head = MachineUse(
        cpu_percent=None if stats.cpu_percent is None else round(stats.cpu_percent, 1),
        memory_gb=_gibibytes(stats.memory_used),
        gpu_percent=stats.gpu_percent,
        vram_gb=_gibibytes(stats.device_memory_used),
    )
    return SystemStatsAnswer(
        **msgspec.structs.asdict(head),
        memory=memory_entries(stats.memory, detail=caller.context.is_admin),
        nodes=[_node_use(each, head) for each in stats.nodes] or UNSET,
    )


def _node_use(node: NodeReport, head: MachineUse) -> NodeUse:
    name, state = node.facts.name, node.state.value
    if name == HEAD:
        return NodeUse(node=name, state=state, **msgspec.structs.asdict(head))
    devices = [each for each in node.memory if each.place != HOST]
    return NodeUse(
        node=name,
        state=state,
        memory_gb=next((_gibibytes(each.total - each.free) for each in node.memory if each.place == HOST), None),
        gpu_percent=max((each.used_percent for each in devices if each.used_percent is not None), default=None),
        vram_gb=_gibibytes(sum(each.total - each.free for each in devices)) if devices else None,
    )


def _gibibytes(size: int | None) -> float | None:
    return None if size is None else round(size / _GIBI, 2)
