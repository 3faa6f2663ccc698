"""What ``lemonbus gateway`` passes to the host of gateways: where the server is, and what is this machine's own."""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.wire.bus_address import ClusterMembership

VARIABLE: Final = "LEMONBUS_GATEWAY_SETTINGS"
"""The variable that carries them to the host, which removes it from its environment."""


class GatewaySettings(msgspec.Struct, frozen=True):
    """Everything else is as the supervisor says."""

    membership: ClusterMembership
    node: str
    """The name of this machine in the server."""
    host: str
    port: int
    runtime_dir: str
    gateway_workers: int
    """0: one for every two processors, at most four."""
    log_level: str = "info"
    log_format: str = "auto"
