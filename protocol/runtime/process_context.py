"""What every process that the supervisor starts needs to know, as it travels in the environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

from protocol.config.settings import Settings, read_settings

RUNTIME_VARIABLE: Final = "LEMONBUS_CONTEXT_DIR"
"""The runtime directory."""
BOOT_VARIABLE: Final = "LEMONBUS_BOOT"
"""The id of this run of the server: the same for all supervisors that it has one after the other."""
KEEPER_VARIABLE: Final = "LEMONBUS_KEEPER"
"""The keeper's pid. The keeper itself, which imports nothing of this package, has this name and the one above too."""
ROLE_VARIABLE: Final = "LEMONBUS_ROLE"
"""What a process was started as: ``gateway``, ``worker``, ``job`` …"""
PEER_VARIABLE: Final = "LEMONBUS_PEER"
"""The id of a worker or a job on the bus."""
FINGERPRINT_VARIABLE: Final = "LEMONBUS_FINGERPRINT"
"""With which settings and which release a gateway or a worker was started."""
HEARTBEAT_VARIABLE: Final = "LEMONBUS_HEARTBEAT_FD"
"""The number of the descriptor into which gunicorn's master writes its heartbeat."""


class ProcessContext(NamedTuple):
    """What a child process knows of the server that it is part of."""

    runtime: Path
    boot: str
    keeper: int
    """The pid of the process whose end ends the server: the keeper, which starts a supervisor again that has died."""

    @classmethod
    def from_environment(cls) -> ProcessContext:
        """Read what the supervisor put into the environment; raises KeyError if it did not start us."""
        return cls(
            Path(os.environ[RUNTIME_VARIABLE]),
            os.environ[BOOT_VARIABLE],
            int(os.environ[KEEPER_VARIABLE]),
        )

    @classmethod
    def of_supervisor(cls, runtime: Path) -> ProcessContext:
        """Return what a supervisor tells those that it starts; raises KeyError if no keeper started it."""
        return cls(runtime, os.environ[BOOT_VARIABLE], int(os.environ[KEEPER_VARIABLE]))

    def environment(self) -> dict[str, str]:
        """Return the variables that tell a child the same."""
        return {
            RUNTIME_VARIABLE: str(self.runtime),
            BOOT_VARIABLE: self.boot,
            KEEPER_VARIABLE: str(self.keeper),
        }

    def settings(self) -> Settings:
        """Read the settings of the server."""
        return read_settings(self.runtime)
