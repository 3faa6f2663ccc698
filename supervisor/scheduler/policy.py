"""What an operator wants for a model or a group of models, as values that may be replaced while the server runs. Pure.

What a load or pin call asks for (:class:`~protocol.messages.models.PolicyOverrides`) overrides the policy, until the model
is unloaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from protocol.times import NEVER_UNLOADED


class ModelPolicy(NamedTuple):
    """How one model is treated. Times in seconds."""

    ttl: float = NEVER_UNLOADED
    """An :data:`~protocol.times.IdleTime`; a pinned model is never unloaded for being idle."""
    pin: bool = False
    """Whether it is never evicted for another model."""
    concurrency: int = 0
    """Slots of its engine that requests may hold at once; 0: all."""
    queue: int = 0
    """Requests of each API key that may wait for it; 0: as many as for any model."""
    groups: frozenset[str] = frozenset()
    """The names of its groups."""
    min_replicas: int = 1
    """How many engines of it run at least while it is loaded."""
    max_replicas: int = 1
    """How many of them run at most."""


class GroupPolicy(NamedTuple):
    """Which models in a group, and which outside it, may be loaded at once."""

    exclusive: bool = False
    """Whether models outside the group cannot be loaded while one of the group is, and the other way round."""
    swap: bool = False
    """Whether only one model of the group is loaded at once."""
    max_loaded: int = 0
    """How many models of the group, of whatever types, may be loaded at once; 0: the group has no limit."""

    @property
    def limit(self) -> int:
        """How many models of the group may be loaded at once; 0: no limit."""
        return 1 if self.swap else self.max_loaded


class PolicySource(Protocol):
    """Where the scheduler asks for policies: an unchanging view of the configuration."""

    @property
    def groups(self) -> Mapping[str, GroupPolicy]:
        """The groups by their names."""
        ...

    def of(self, model: str) -> ModelPolicy:
        """Return the policy of a model by its registered name, quickly and without a look at the disk."""
        ...


class FixedPolicies(NamedTuple):
    """Policies by registered names. A model that is not among them has the default policy."""

    models: Mapping[str, ModelPolicy] = {}
    groups: Mapping[str, GroupPolicy] = {}

    def of(self, model: str) -> ModelPolicy:
        """Return the policy of a model."""
        return self.models.get(model, ModelPolicy())
