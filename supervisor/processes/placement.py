"""Where workers and jobs run: what the rest of the supervisor may ask of their processes, whatever machine they are on.

A process is called by its id on the bus. It is told to end by a message (``Shutdown``), and killed here. How it is
started, watched and killed, and what its pid means, only the placement knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from protocol.models.nodes import HEAD

OnEnded = Callable[[str], None]
"""Called once when a process has ended, with the reason: ``exit 1``, ``SIGKILL``…"""


class LostWithNode(str):
    """Why a process has ended whose node is lost. The text names the node: ``node gpu2 is not reachable``."""

    __slots__ = ()


class Survivor(NamedTuple):
    """A worker or a job of an earlier supervisor, as its placement has found it. The placement alone knows where it runs."""

    role: str
    """``worker`` or ``job``."""
    peer: str
    """Its id on the bus."""
    fingerprint: str = ""
    """Its settings and release: see :mod:`supervisor.processes.fingerprints`."""
    welcomed: bool = False
    """Whether a supervisor has welcomed it. One that was not has no model and no order."""
    node: str = HEAD


class ProcessFigures(Protocol):
    """What can be shown of processes."""

    def pid(self, name: str) -> int:
        """Return the pid of a process, to be shown; 0 if none of this name runs."""

    def resident_bytes(self, name: str, pid: int) -> int:
        """Return the resident bytes of what a process has reported, itself or its engine; 0 if they are not known."""

    def started_by(self, name: str) -> list[int]:
        """Return the pids of everything that a process has started, as drivers report them."""

    def held_bytes(self, name: str) -> int:
        """Return the resident bytes of everything that a process has started, with mapped files; 0 if it is not known."""

    def node_of(self, name: str) -> str:
        """Return the node of a process; the head if none of this name runs."""

    def server_age(self) -> float:
        """Return how many seconds ago the server was started, by whichever of its supervisors."""


class Placement(ProcessFigures, Protocol):
    """Starts, adopts and kills processes, and reports their ends."""

    def start(
        self,
        name: str,
        role: str,
        module: str,
        on_ended: OnEnded,
        extra: Mapping[str, str] | None = None,
        node: str = HEAD,
    ) -> None:
        """Start ``python -m module`` on a node, with these variables besides those of the server. If that fails, it has ended at once."""

    def adopt(self, survivor: Survivor, on_ended: OnEnded) -> None:
        """Take over a process that an earlier supervisor started, and that this placement has found."""

    def kill(self, name: str) -> None:
        """End a process and everything that it has started, now. Do nothing if none of this name runs."""

    def give_up(self, name: str) -> None:
        """Kill a process, and do not wait for its end: it may wait for a dead disk."""

    def kill_all(self) -> None:
        """Kill every process of the server but the supervisor and its keeper."""

    def __len__(self) -> int:
        """Return how many of these run or start, except those that were given up."""
