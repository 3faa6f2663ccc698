"""What the gauges of `/metrics` show: the state of the server at one moment, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from protocol.messages.batches import BatchFigures
from protocol.messages.devices import DeviceReading
from protocol.messages.health import DiskSpace, FailedModel, LoadInProgress
from protocol.messages.node_reports import NodeReport
from protocol.models.memory import Capacity


class ReplicaMemory(NamedTuple):
    """What one of several engines of a model holds, and its worker."""

    number: int
    worker_bytes: int
    engine_bytes: int
    node: str = ""


class ModelSnapshot(NamedTuple):
    """One model that has a worker, or that requests wait for."""

    name: str
    loaded: bool
    """Its engine answers requests."""
    queued: int = 0
    slots: int = 0
    slots_busy: int = 0
    parameters: int = 0
    context: int = 0
    gpu_layers: int = 0
    worker_bytes: int = 0
    engine_bytes: int = 0
    node: str = ""
    """Where its worker runs; empty on a server with one machine."""
    replicas: Sequence[ReplicaMemory] = ()
    """Its engines that answer, if it may have several."""


class EngineMetrics(NamedTuple):
    """What the engine of a model answered under ``/metrics``; None if it did not answer in time."""

    model: str
    text: bytes | None
    replica: int = 0
    """The number of the engine; 0: its model has only one."""


class MachineSnapshot(NamedTuple):
    """The machine."""

    memory: Sequence[Capacity] = ()
    devices: Sequence[DeviceReading] = ()
    """All devices, with those that use the host's memory."""
    disks: Sequence[DiskSpace] = ()


class RemainingLimit(NamedTuple):
    """What is left of one limit of an API key, by the key's name."""

    key: str
    limit: str
    remaining: int


class ServerSnapshot(NamedTuple):
    """The whole server. Sizes in bytes, times in seconds."""

    version: str
    uptime: float
    active_requests: int
    models: list[ModelSnapshot]
    process_bytes: Mapping[str, int]
    """Role → resident bytes of its processes, excluding those of loaded models."""
    bus_drops: Mapping[str, int]
    """Kind → messages that were lost."""
    internal_errors: int
    engines: list[EngineMetrics]
    key_limits: Sequence[RemainingLimit] = ()
    short_names: Mapping[str, str] = {}
    """Registered name → the model's name in the form ``NAME:TAG`` if it has one, else the registered name."""
    machine: MachineSnapshot = MachineSnapshot()
    loads: Sequence[LoadInProgress] = ()
    """Loads that have begun and not ended, the oldest first."""
    failed: Sequence[FailedModel] = ()
    """Models that could not be loaded, or whose engines died too often."""
    ready: bool = True
    """Whether each model for the start was loaded or has failed for good."""
    drained: bool = False
    """Whether an operator has drained it."""
    key_expiries: Mapping[str, float] = {}
    """Name of an API key that expires → when, in Unix seconds."""
    nodes: Sequence[NodeReport] = ()
    """The machines of the server; none if there is only one."""
    batches: BatchFigures | None = None
    """None if there was none since the supervisor's start."""
