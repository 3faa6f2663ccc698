"""Messages between the supervisor and the agents of other nodes, which start, watch and kill our processes there."""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.messages.system_info import MachineInfo
from protocol.models.memory import Capacity
from protocol.models.nodes import NodeFacts
from protocol.times import Seconds
from protocol.wire.envelope import control_message

MAX_ENDED: Final = 256
"""How many ended processes an agent remembers: more than can end while a connection is replaced."""


class NodeProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker or a job that an agent has started, and that has not ended."""

    name: str
    """Its id on the bus."""
    role: str
    """``worker`` or ``job``."""
    pid: int = 0
    """On its node; 0: it is about to start."""
    fingerprint: str = ""
    """The settings and the release that it was started with."""
    welcomed: bool = False
    """Whether a supervisor has welcomed it. One that was not has no model and no order."""


class NodeHardware(msgspec.Struct, frozen=True, omit_defaults=True):
    """The machine of a node."""

    machine: MachineInfo
    drivers: list[str] = []
    """Those of its graphics cards."""


@control_message
class NodeChanged(msgspec.Struct, frozen=True):
    """Agent → supervisor: what it says of its node from now on."""

    facts: NodeFacts
    hardware: NodeHardware | None = None


@control_message
class ConfigureNode(msgspec.Struct, frozen=True):
    """Supervisor → agent, after each ``Welcome``: the settings for its processes, as JSON in the payload.

    The agent writes them with its own directories, and then starts processes.
    """

    grace: Seconds
    """How long the agent and its processes wait for another supervisor when this one has ended."""


@control_message
class StartProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    """Supervisor → agent: start ``python -m module``, with these variables besides those of the node."""

    name: str
    role: str
    module: str
    variables: dict[str, str] = {}


@control_message
class KillProcess(msgspec.Struct, frozen=True):
    """Supervisor → agent: end a process and everything that it has started, now. A name that does not run is ignored."""

    name: str


@control_message
class ProcessEnded(msgspec.Struct, frozen=True):
    """Agent → supervisor, within 100 ms: a process has ended. ``why`` is like ``SIGKILL`` or ``exit 1``."""

    name: str
    why: str


class AgentSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """Agent → supervisor, the payload of ``Hello``."""

    facts: NodeFacts
    processes: list[NodeProcess] = []
    ended: list[ProcessEnded] = []
    """The latest ends, which a supervisor may not have read. At most :data:`MAX_ENDED`."""
    hardware: NodeHardware | None = None
    """None before the agent has got its settings."""
    drains: str = ""
    """Why the node drains, as :class:`NodeDrains` says it; empty if it does not."""


@control_message
class NodeDrains(msgspec.Struct, frozen=True):
    """Agent → supervisor: the agent ends when its last worker has ended, at the latest after the grace.

    The node gets no new models, and those that it has move or end. ``why`` is a clause: ``its agent was told to end``.
    """

    why: str


@control_message
class NodeLeaves(msgspec.Struct, frozen=True):
    """Agent → supervisor: it ends all of its processes, and then itself. ``why`` is a clause: ``it was told to end``."""

    why: str


@control_message
class ReadNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """Supervisor → agent: read the memory of the node once."""

    number: int
    """Of this order, rising."""
    workers: list[str] = []
    """Those of its workers whose memory to measure."""


class WorkerFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a worker and everything that it has started use on their node."""

    pid: int = 0
    resident: dict[int, int] = {}
    """Pid → resident bytes, of the worker and of what it has started."""
    held: dict[str, int] = {}
    """Bytes by place of what it has started, with mapped files."""


@control_message
class NodeRead(msgspec.Struct, frozen=True, omit_defaults=True):
    """Agent → supervisor: the answer."""

    number: int
    capacities: list[Capacity] = []
    workers: dict[str, WorkerFigures] = {}
    """Of those that were asked for and run."""
