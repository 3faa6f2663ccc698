"""What only a server over several machines needs: whole folders, and single modules of others."""

from __future__ import annotations

from collections.abc import Iterable

_FOLDERS = (
    "supervisor.gateway_host",
    "supervisor.node_agent",
    "supervisor.node_files",
    "supervisor.nodes",
    "workers.jobs.ray_cluster",
)
_MODULES = (
    *("protocol.config.cluster_keys", "protocol.config.ray_address", "protocol.messages.gateway_hosts"),
    *("protocol.messages.nodes", "protocol.models.node_paths", "protocol.wire.curve", "protocol.wire.parts"),
    "protocol.wire.peer_proof",
    *("supervisor.bus.hello_check", "supervisor.bus.remote_router", "supervisor.handlers.nodes"),
    *("supervisor.lifecycle.cluster", "supervisor.persistence.cluster_run", "supervisor.recovery.taken_over_nodes"),
)


def of_cluster(imported: Iterable[str]) -> list[str]:
    """Return those of these modules that only a cluster needs."""
    return [name for name in imported if name in _MODULES or name.startswith(_FOLDERS)]
