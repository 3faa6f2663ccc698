"""The figures of the last finished request, and of each of the latest models, of its last one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from protocol.messages.health import StatsReport

MAX_STATS: Final = 256
"""How many models' latest figures are kept."""


class LatestStats:
    """By the registered name of the model, latest model last."""

    def __init__(self) -> None:
        """No request has finished."""
        self._by_model: dict[str, StatsReport] = {}

    def add(self, stats: StatsReport) -> None:
        """Keep the figures of a finished request."""
        self._by_model.pop(stats.model, None)
        self._by_model[stats.model] = stats
        if len(self._by_model) > MAX_STATS:
            del self._by_model[next(iter(self._by_model))]

    def latest(self, wanted: Callable[[str], bool]) -> StatsReport | None:
        """Return the figures of the last request, among the models that are wanted."""
        return next((self._by_model[model] for model in reversed(self._by_model) if wanted(model)), None)

    def forget(self, model: str) -> None:
        """Forget a model that was deleted."""
        self._by_model.pop(model, None)
