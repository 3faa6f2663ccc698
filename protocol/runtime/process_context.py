"""What every process started by the supervisor needs to know, as environment variables carry it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

from protocol.config.settings import Settings, read_settings
from protocol.models.nodes import HEAD
from protocol.wire.bus_address import BusAddress, read_bus_address

RUNTIME_VARIABLE: Final = "LEMONBUS_CONTEXT_DIR"
"""The runtime directory."""
BOOT_VARIABLE: Final = "LEMONBUS_BOOT"
"""The id of this run of the server: the same for all its successive supervisors."""
KEEPER_VARIABLE: Final = "LEMONBUS_KEEPER"
"""The keeper's pid. The keeper imports nothing of this package, but uses this name and the one above."""
NODE_VARIABLE: Final = "LEMONBUS_NODE"
"""The name of the node where a process runs; missing: the head."""
ROLE_VARIABLE: Final = "LEMONBUS_ROLE"
"""The role of a process: ``gateway``, ``worker``, ``job`` …"""
PEER_VARIABLE: Final = "LEMONBUS_PEER"
"""The id of a worker or a job on the bus."""
PROOF_VARIABLE: Final = "LEMONBUS_PROOF"
"""What a worker or a job on another node says to prove its id; missing on the head."""
FINGERPRINT_VARIABLE: Final = "LEMONBUS_FINGERPRINT"
"""The settings and the release that a gateway or a worker was started with."""
HEARTBEAT_VARIABLE: Final = "LEMONBUS_HEARTBEAT_FD"
"""The number of the descriptor that gunicorn's master writes its heartbeat into."""


class ProcessContext(NamedTuple):
    """What a child process knows about its server."""

    runtime: Path
    boot: str
    keeper: int
    """The pid of the keeper, which restarts a supervisor that has died. When the keeper ends, the server ends.

    On other nodes than the head, what has started our processes there takes the place of the keeper.
    """
    node: str = HEAD
    """The name of this node."""

    @classmethod
    def from_environment(cls) -> ProcessContext:
        """Read what the supervisor put into the environment; raises KeyError if it did not start us."""
        return cls(
            Path(os.environ[RUNTIME_VARIABLE]),
            os.environ[BOOT_VARIABLE],
            int(os.environ[KEEPER_VARIABLE]),
            os.environ.get(NODE_VARIABLE, HEAD),
        )

    @classmethod
    def of_supervisor(cls, runtime: Path) -> ProcessContext:
        """Return what a supervisor tells its children; raises KeyError if no keeper started it."""
        return cls(runtime, os.environ[BOOT_VARIABLE], int(os.environ[KEEPER_VARIABLE]))

    def environment(self) -> dict[str, str]:
        """Return the variables that pass this on to a child."""
        variables = {
            RUNTIME_VARIABLE: str(self.runtime),
            BOOT_VARIABLE: self.boot,
            KEEPER_VARIABLE: str(self.keeper),
        }
        return variables if self.node == HEAD else {**variables, NODE_VARIABLE: self.node}

    @property
    def bus(self) -> BusAddress:
        """Where the sockets of the server are. This reads a small file, if there is one: ask once, and keep the answer."""
        return read_bus_address(self.runtime, remote=self.node != HEAD)

    def settings(self) -> Settings:
        """Read the settings of the server."""
        return read_settings(self.runtime)
