"""What the scheduler is given: its limits, and the model that a request or a load names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from protocol.messages.models import PolicyOverrides
from protocol.models.recipes import ModelSpec, OptionValue
from supervisor.scheduler.backoff import BackoffPolicy
from supervisor.scheduler.memory import fitting


class SchedulerLimits(NamedTuple):
    """How much may be loaded and may wait. Sizes in bytes, times in seconds."""

    models: int = 4
    queue_requests: int = 64
    queue_bytes: int = 64 * 1024 * 1024
    grace: float = 30.0
    restarts: BackoffPolicy = BackoffPolicy()
    spares: int = 1
    hello_timeout: float = 20.0
    """How long a worker process may take to report. On a loaded machine, Python alone takes seconds."""
    memory_reserve: int = fitting.AUTOMATIC
    """Bytes of the host's memory that models never get."""
    device_memory_reserve: int = fitting.AUTOMATIC
    """The same for each device."""
    scales: bool = False
    """Whether a cluster engine may be asked for further nodes."""
    verbose: bool = False
    """Whether every grant is logged."""


class ModelTarget(NamedTuple):
    """The model that a request or load names. ``spec`` is None while the model is not on this machine.

    ``asked``: what a load asks for besides options. ``any``: however it is loaded. ``options``: what a load asks for
    while there is no spec. ``fallback``: what it is loaded with if ``spec`` fails. ``provisional``: nothing knew the
    model before this load.
    """

    name: str
    type: str
    spec: ModelSpec | None
    asked: PolicyOverrides = PolicyOverrides()
    any: bool = False
    options: Mapping[str, OptionValue] = {}
    provisional: bool = False
    fallback: ModelSpec | None = None


class FileLocations(Protocol):
    """Where the files of models are."""

    def has(self, node: str, spec: ModelSpec) -> bool:
        """Return whether a node has all files of a model: quickly, and without a look at any disk. The head always has them."""
        ...
