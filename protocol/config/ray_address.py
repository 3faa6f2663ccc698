"""Where the Ray cluster of this machine is, and the address of this machine in it. Ray itself is not asked: it is slow to import."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import structs

from protocol.config.settings import Settings
from protocol.failures import invalid
from protocol.wire.bus_address import own_address, split_address

CLUSTER_PORT: Final = 13306
"""The port of ``cluster_address`` if that is not set; the port after it is used as well."""
_ADDRESS_FILE: Final = "ray/ray_current_cluster"
"""Written by ``ray start``, in its folder of temporary files: the address of the cluster that this machine joined last."""


def find_gcs(settings: Settings, environment: Mapping[str, str]) -> str:
    """Return ``HOST:PORT`` of the cluster's head, by the same rules as ``ray.init``; raises ``invalid_request``."""
    if settings.ray_address != "auto":
        return _checked(settings.ray_address, "ray_address")
    if given := environment.get("RAY_ADDRESS", ""):
        return _checked(given, "RAY_ADDRESS")
    folder = environment.get("RAY_TMPDIR") or environment.get("TMPDIR") or "/tmp"  # noqa: S108 - where Ray looks
    path = Path(folder) / _ADDRESS_FILE
    try:
        found = path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        message = (
            f"ray_address: this machine belongs to no Ray cluster ({path} cannot be read); `ray start` it first,"
            " or set ray_address to HOST:PORT of the cluster's head"
        )
        raise invalid(message, "ray_address") from None
    return _checked(found, str(path))


def with_cluster_address(settings: Settings, environment: Mapping[str, str]) -> Settings:
    """Return the settings with a ``cluster_address`` if models may run on other machines; raises ``invalid_request``.

    If it is not set, it is the address from which this machine reaches the head of the Ray cluster.
    """
    if settings.placement != "ray" or settings.cluster_address:
        return settings
    gcs = find_gcs(settings, environment)
    try:
        host = own_address(*split_address(gcs))
    except OSError as problem:
        message = f"cluster_address: this machine does not reach the head of the Ray cluster, {gcs} ({problem.strerror}); set it to HOST:PORT"
        raise invalid(message, "cluster_address") from problem
    bare = f"[{host}]" if ":" in host else host
    return structs.replace(settings, cluster_address=f"{bare}:{CLUSTER_PORT}")


def _checked(text: str, where: str) -> str:
    try:
        split_address(text)
    except ValueError:
        raise invalid(
            f"{where}: expected HOST:PORT of the Ray cluster's head, got {text[:80]!r}", "ray_address"
        ) from None
    return text
