"""What a node agent is started with: one file, which only its user may read, because it has the keys of a member.

What starts agents writes it: the job of the cluster engine, or an operator. Its path is all that the environment has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from protocol import small_files
from protocol.failures import DECODE_ERRORS, invalid
from protocol.models.nodes import why_no_node_name
from protocol.wire.bus_address import ClusterMembership

AGENT_FILE_VARIABLE: Final = "LEMONBUS_AGENT_FILE"
"""The path of the file."""

Text = Annotated[str, Meta(min_length=1)]


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The settings of one agent. All other settings come from the supervisor."""

    node: str
    boot: Text
    """The id of the run of the server."""
    membership: ClusterMembership
    runtime_dir: Text
    """Private to this agent: sockets of its processes, its lock, and the settings."""
    cache_dir: Text
    """Models and backends of this node."""
    state_dir: Text
    machine_dir: Text = "/"
    grace: float = 30.0
    """Seconds until an agent ends that no supervisor welcomes; afterwards, the server's setting counts."""
    labels: dict[str, str] = {}
    resources: dict[str, float] = {}
    devices: list[str] = []
    """GPUs that engines may use, as in the setting ``devices`` of a model; empty: all."""


def write_agent_settings(settings: AgentSettings, path: Path) -> None:
    """Write the file anew, readable only for its owner; raises OSError."""
    small_files.replace_private(path, msgspec.json.encode(settings))


def read_agent_settings(path: Path) -> AgentSettings:
    """Return what the file says; raises OSError, and ``invalid_request`` for anything wrong in it."""
    data = small_files.read_small_file(path)
    if path.stat().st_mode & 0o077:
        raise invalid(f"{path} has keys, and other users may read it: chmod 600 {path}")
    try:
        settings = msgspec.json.decode(data, type=AgentSettings)
    except DECODE_ERRORS as problem:
        raise invalid(f"{path}: {problem}") from None
    if why := why_no_node_name(settings.node):
        raise invalid(f"{path}: {why}")
    return settings
