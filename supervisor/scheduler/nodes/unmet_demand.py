"""What models need that no node can give, for a cluster engine that can add nodes. Pure."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from protocol.models.memory import HOST, MemoryEstimate
from protocol.models.recipes import ModelSpec
from supervisor.scheduler.memory.fitting import least_need

UNMET_S: Final = 120.0
"""For this long after a load was refused or had to wait, a node is asked for: longer than a new one takes to join, mostly."""


class _Demand(NamedTuple):
    bundle: dict[str, float]
    until: float
    """Infinite while the load waits."""


class UnmetDemand:
    """The loads that wait or were refused for want of a node."""

    def __init__(self) -> None:
        """All nodes suffice."""
        self._demands: dict[str, _Demand] = {}
        self._requested: list[dict[str, float]] = []
        self._changed = False
        self._first_end = math.inf

    def note(self, key: str, bundle: dict[str, float]) -> None:
        """A model cannot be loaded now. ``bundle``: as in :class:`~supervisor.scheduler.effects.RequestResources`."""
        self._demands[key] = _Demand(bundle, math.inf)
        self._changed = True

    def waits_no_more(self, key: str, now: float) -> None:
        """A model is loaded, was refused, or is looked at again."""
        demand = self._demands.get(key)
        if demand is not None and demand.until == math.inf:
            self._demands[key] = demand._replace(until=now + UNMET_S)
            self._first_end = min(self._first_end, now + UNMET_S)

    def met(self, key: str) -> None:
        """A model is loaded."""
        self._changed = self._demands.pop(key, None) is not None or self._changed

    def changed(self, now: float) -> list[dict[str, float]] | None:
        """Return what is to be asked for from now on; None if that is the same as before."""
        if not self._changed and now < self._first_end:
            return None
        self._demands = {key: demand for key, demand in self._demands.items() if demand.until > now}
        self._changed = False
        self._first_end = min((demand.until for demand in self._demands.values()), default=math.inf)
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
