"""What every process that the supervisor starts needs to know, as it travels in the environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from protocol.config.settings import Settings, read_settings


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
            Path(os.environ["LEMONBUS_CONTEXT_DIR"]),
            os.environ["LEMONBUS_BOOT"],
            int(os.environ["LEMONBUS_KEEPER"]),
        )

    @classmethod
    def of_supervisor(cls, runtime: Path) -> ProcessContext:
        """Return what a supervisor tells those that it starts; raises KeyError if no keeper started it."""
        return cls(runtime, os.environ["LEMONBUS_BOOT"], int(os.environ["LEMONBUS_KEEPER"]))

    def environment(self) -> dict[str, str]:
        """Return the variables that tell a child the same."""
        return {
            "LEMONBUS_CONTEXT_DIR": str(self.runtime),
            "LEMONBUS_BOOT": self.boot,
            "LEMONBUS_KEEPER": str(self.keeper),
        }

    def settings(self) -> Settings:
        """Read the settings of the server."""
        return read_settings(self.runtime)
