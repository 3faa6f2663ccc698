"""Counters and histograms with labels, as cheap as a dictionary and a binary search. Pure.

prometheus_client renders them (``families.py``). Its own counters take a lock and several calls for each increment. Its
histograms cannot take several counted observations at once, and neither can be shown under two names.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

from protocol.messages.metrics import OTHER

MAX_MODELS: Final = 32
"""Models that have their own series; all further ones share one. Each adds a hundred lines, which take 300 µs."""
MAX_SERIES: Final = 1000
"""Combinations of label values of one counter or histogram."""

Labels = tuple[str, ...]


class LabelValues:
    """The values of a label: the first ones seen, up to a limit, then ``other``."""

    def __init__(self, limit: int = MAX_MODELS) -> None:
        """Keep the first ``limit`` values apart."""
        self._limit = limit
        self._known: set[str] = set()

    def bounded(self, value: str) -> str:
        """Return the value, or ``other``."""
        if value in self._known:
            return value
        if len(self._known) >= self._limit or not value:
            return OTHER
        self._known.add(value)
        return value


class Counter:
    """A number for each combination of label values; it only rises."""

    def __init__(self, *names: str, initial: Sequence[Labels] = ()) -> None:
        """``names`` of the labels. ``initial``: combinations that are shown from the start."""
        self.names = names
        self._values: dict[Labels, float] = dict.fromkeys(initial, 0)
        self._overflow: Labels = (OTHER,) * len(names)

    def add(self, labels: Labels, amount: float = 1) -> None:
        """Add to one combination. If there are too many, add to the one that all further ones share."""
        values = self._values
        if labels not in values and len(values) >= MAX_SERIES:
            labels = self._overflow
        values[labels] = values.get(labels, 0) + amount

    @property
    def values(self) -> Mapping[Labels, float]:
        """All combinations."""
        return self._values

    @property
    def total(self) -> float:
        """The sum of all of them."""
        return sum(self._values.values())


class Distribution:
    """The observations of one combination of label values."""

    __slots__ = ("counts", "sum")

    def __init__(self, buckets: int) -> None:
        """Nothing was observed yet. ``buckets`` includes the one without a bound."""
        self.counts = [0] * buckets
        self.sum = 0.0


class Histogram:
    """Observations in buckets. A value equal to a bound is in that bound's bucket, as in Prometheus."""

    def __init__(self, bounds: Sequence[float], *names: str) -> None:
        """``bounds``: the rising upper bounds, without infinity. ``names`` of the labels."""
        self.bounds = tuple(bounds)
        self.names = names
        self._distributions: dict[Labels, Distribution] = {}
        self._overflow: Labels = (OTHER,) * len(names)
        if not names:
            self._distribution(())

    def _distribution(self, labels: Labels) -> Distribution:
        found = self._distributions.get(labels)
        if found is None:
            if len(self._distributions) >= MAX_SERIES:
                labels = self._overflow
            found = self._distributions.setdefault(labels, Distribution(len(self.bounds) + 1))
        return found

    def observe(self, labels: Labels, value: float) -> None:
        """Count one value."""
        distribution = self._distribution(labels)
        distribution.counts[bisect_left(self.bounds, value)] += 1
        distribution.sum += value

    def observe_all(self, labels: Labels, values: array[float]) -> None:
        """Count many values. This costs a sort instead of a search for each."""
        ordered = sorted(values)
        distribution = self._distribution(labels)
        counts, before = distribution.counts, 0
        for index, bound in enumerate(self.bounds):
            upto = bisect_right(ordered, bound, before)
            counts[index] += upto - before
            before = upto
        counts[-1] += len(ordered) - before
        distribution.sum += sum(ordered)

    def merge(self, labels: Labels, counts: Sequence[int], total: float) -> None:
        """Add observations counted elsewhere, in these buckets; other buckets are ignored."""
        if len(counts) != len(self.bounds) + 1:
            return
        distribution = self._distribution(labels)
        distribution.counts = [ours + theirs for ours, theirs in zip(distribution.counts, counts, strict=True)]
        distribution.sum += total

    @property
    def distributions(self) -> Mapping[Labels, Distribution]:
        """All combinations."""
        return self._distributions
