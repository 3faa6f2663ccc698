"""What the configuration lets one engine use. Pure."""

from __future__ import annotations

import math

import msgspec


class EngineLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limits of a model's engine."""

    memory: int | None = None
    """Bytes, mapped model files included; 0: no limit; None: as the setting ``memory_limit`` says."""
    cpus: float = 0.0
    """Processors, as a number that may have a fraction; 0: all."""
    nice: int = 0
    """Added to the nice value of the server."""
    user: str = ""
    """The user that it runs as, by name or number; if empty, the server's user."""

    @property
    def whole_cpus(self) -> int:
        """Processors that it computes on; 0: all."""
        return math.ceil(self.cpus)
