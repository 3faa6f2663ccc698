"""Messages between the supervisor and the job that is the driver of a Ray cluster: which nodes Ray has, and how our agents there do."""

from __future__ import annotations

import msgspec

from protocol.wire.envelope import control_message


class RayNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A living node of the Ray cluster, other than the head."""

    name: str
    address: str
    labels: dict[str, str] = {}
    resources: dict[str, float] = {}
    """Ray's custom resources, such as ``{"npu": 1}``."""
    agent: bool = False
    """Whether our agent was started there and has not ended. It is a node of the server when it has said Hello."""
    problem: str = ""
    """Why it was not started or has ended, as a clause."""


@control_message
class WatchRayCluster(msgspec.Struct, frozen=True):
    """Supervisor → job: start an agent on each node of the Ray cluster, and again when one has ended."""

    release: str
    """Of lemonbus. After an upgrade, a job of the new release takes the place of the former one."""


@control_message
class RayClusterReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Job → supervisor, on each change and after each ``Hello``: the cluster as Ray shows it."""

    nodes: list[RayNode] = []
    problem: str = ""
    """Why Ray does not answer; the nodes are then those that it had last. Empty: it does."""


@control_message
class RequestRayResources(msgspec.Struct, frozen=True):
    """Supervisor → job: what models need that fits no node, for Ray's autoscaler. Each request replaces the former one."""

    bundles: list[dict[str, float]]
    """Each is what one further node must have: ``{"GPU": 1, "npu": 1}``."""
