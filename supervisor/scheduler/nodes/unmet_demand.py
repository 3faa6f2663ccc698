"""What models need that no node can give, for a cluster engine that can add nodes. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from protocol.models.memory import HOST, MemoryEstimate
from protocol.models.recipes import ModelSpec
from supervisor.scheduler.memory.fitting import least_need

UNMET_S: Final = 120.0
"""For this long after a load was refused or had to wait, a node is asked for: longer than a new one takes to join, mostly."""


class _Demand(NamedTuple):
    bundle: dict[str, float]
    until: float


class UnmetDemand:
    """The loads that wait or were refused for want of a node."""

    def __init__(self) -> None:
        """All nodes suffice."""
        self._demands: dict[str, _Demand] = {}
        self._requested: list[dict[str, float]] = []

    def note(self, key: str, bundle: dict[str, float], now: float) -> None:
        """A model could not be loaded now. ``bundle``: as in :class:`~supervisor.scheduler.effects.RequestResources`."""
        self._demands[key] = _Demand(bundle, now + UNMET_S)

    def met(self, key: str) -> None:
        """A model is loaded."""
        self._demands.pop(key, None)

    def changed(self, now: float) -> list[dict[str, float]] | None:
        """Return what is to be asked for from now on; None if that is the same as before."""
        self._demands = {key: demand for key, demand in self._demands.items() if demand.until > now}
        wanted = [demand.bundle for _, demand in sorted(self._demands.items())]
        if wanted == self._requested:
            return None
        self._requested = wanted
        return wanted


def bundle_of(spec: ModelSpec, estimate: MemoryEstimate, *, on_devices: bool) -> dict[str, float]:
    """Return what a node must have for a model. ``on_devices``: whether its engine computes on GPUs."""
    need = least_need(estimate)
    gpus = sum(bool(bytes_) for place, bytes_ in need.items() if place != HOST) if on_devices else 0
    host = need.get(HOST, 0) if gpus else sum(need.values())
    return {
        "CPU": spec.limits.cpus or 1.0,
        **({"GPU": float(gpus)} if gpus else {}),
        **({"memory": float(host)} if host else {}),
        **spec.needs.resources,
    }
