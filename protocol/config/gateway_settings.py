"""What ``lemonbus gateway`` passes to the host of gateways: where the server is, and what is this machine's own."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import Final

import msgspec

from protocol.wire.bus_address import ClusterMembership

VARIABLE: Final = "LEMONBUS_GATEWAY_SETTINGS_FD"
"""The descriptor of an anonymous file that has them: they have keys, and /proc shows the environment that a process began with."""


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


def export(settings: GatewaySettings) -> dict[str, str]:
    """Return the variable that passes them on to a program that this process becomes, or starts with this descriptor."""
    file = os.memfd_create("lemonbus-gateway")
    os.set_inheritable(file, True)
    with os.fdopen(os.dup(file), "wb") as writer:
        writer.write(msgspec.json.encode(settings))
    return {VARIABLE: str(file)}


def take(environment: MutableMapping[str, str]) -> GatewaySettings:
    """Remove the variable, and return what it passes on. The file is closed."""
    with os.fdopen(int(environment.pop(VARIABLE)), "rb") as reader:
        reader.seek(0)
        return msgspec.json.decode(reader.read(), type=GatewaySettings)
