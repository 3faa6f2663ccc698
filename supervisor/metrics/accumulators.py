"""Counters and histograms with labels, as cheap as a dictionary and a binary search. Pure.

`families.py` names them. prometheus_client's counters take a lock and several calls for each increment. Its
histograms cannot take several counted observations at once, and neither can be shown under two names.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from protocol.messages.metrics import OTHER

MAX_SERIES: Final = 1000
"""Combinations of label values of one counter or histogram."""

_MOST_CHECKED: Final = 8
"""Values of which it is asked whether they are in use, each time."""

Labels = tuple[str, ...]


class LabelValues:
    """The values of a label: the first ones seen, up to a limit, then ``other``."""

    def __init__(self, limit: int) -> None:
        """Keep the first ``limit`` values apart."""
        self._limit = limit
        self._known: dict[str, None] = {}

    def bounded(self, value: str) -> str:
        """Return the value, or ``other``."""
        if value in self._known:
            return value
        if len(self._known) >= self._limit or not value:
            return OTHER
        self._known[value] = None
        return value

    def state(self) -> list[str]:
        """Return the values, for the next supervisor."""
        return list(self._known)

    def restore(self, state: Sequence[Any]) -> None:
        """Keep apart what an earlier supervisor kept apart."""
        self._known |= dict.fromkeys(state[: self._limit])


class RecentValues:
    """The values of a label: those in use, and the ones seen last, up to a limit.

    A further value takes the place of the one that was seen longest ago and is not in use. It is ``other`` if all are. Only a few
    values are looked at each time, and those in use count as seen then: a server with very many loaded models asks for each request.
    """

    def __init__(self, limit: int, dropped: Callable[[str], None]) -> None:
        """``dropped`` is called with each value that has lost its place."""
        self._limit, self._dropped = limit, dropped
        self.in_use: Callable[[str], bool] = lambda _value: False
        """Whether a value must stay."""
        self._known: dict[str, None] = {}
        """Seen last, last."""

    def shown(self, values: Iterable[str]) -> set[str]:
        """Return which of these values are kept apart, and others within the limit. None of them takes a place."""
        known: list[str] = []
        others: list[str] = []
        for value in dict.fromkeys(values):
            (known if value in self._known else others).append(value)
        return {*known, *others[: max(0, self._limit - len(self._known))]}

    def bounded(self, value: str) -> str:
        """Return the value, or ``other``."""
        if not value:
            return OTHER
        if value in self._known:
            del self._known[value]
        elif len(self._known) >= self._limit:
            for _ in range(min(_MOST_CHECKED, len(self._known))):
                oldest = next(iter(self._known))
                del self._known[oldest]
                if not self.in_use(oldest):
                    break
                self._known[oldest] = None
            else:
                return OTHER
            self._dropped(oldest)
        self._known[value] = None
        return value

    def state(self) -> list[str]:
        """Return the values, for the next supervisor."""
        return list(self._known)

    def restore(self, state: Sequence[Any]) -> None:
        """Keep apart what an earlier supervisor kept apart."""
        self._known = dict.fromkeys(state[-self._limit :])


class Counter:
    """A number for each combination of label values; it only rises."""

    def __init__(self, *names: str, initial: Sequence[Labels] = ()) -> None:
        """``names`` of the labels. ``initial``: combinations that are shown from the start."""
        self.names = names
        self._values: dict[Labels, float] = dict.fromkeys(initial, 0)
        self._dropped = 0.0
        self._overflow: Labels = (OTHER,) * len(names)

    def add(self, labels: Labels, amount: float = 1) -> None:
        """Add to one combination. If there are too many, add to the one that all further ones share."""
        try:
            self._values[labels] += amount
        except KeyError:
            if len(self._values) >= MAX_SERIES:
                labels = self._overflow
            self._values[labels] = self._values.get(labels, 0) + amount

    @property
    def values(self) -> Mapping[Labels, float]:
        """All combinations."""
        return self._values

    @property
    def total(self) -> float:
        """The sum of all that was ever added."""
        return self._dropped + sum(self._values.values())

    def drop(self, label: str, value: str) -> None:
        """Show the combinations with this value of a label no more. If it comes again, they start at 0, as after a restart."""
        for labels in _with_value(self._values, self.names, label, value):
            self._dropped += self._values.pop(labels)

    def seen(self, label: str) -> set[str]:
        """Return the values of a label that are shown."""
        return _values_of(self._values, self.names, label)

    def state(self) -> list[tuple[Labels, float]]:
        """Return all combinations, for the next supervisor, and without labels what was dropped."""
        return [((), self._dropped), *self._values.items()] if self.names else list(self._values.items())

    def restore(self, state: Sequence[Any]) -> None:
        """Go on from what an earlier supervisor had counted. Combinations of other labels are ignored."""
        for labels, value in state:
            if len(labels) == len(self.names):
                self.add(tuple(labels), value)
            elif not labels:
                self._dropped += value


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

    def drop(self, label: str, value: str) -> None:
        """Show the combinations with this value of a label no more. If it comes again, they start at 0, as after a restart."""
        for labels in _with_value(self._distributions, self.names, label, value):
            del self._distributions[labels]

    def seen(self, label: str) -> set[str]:
        """Return the values of a label that are shown."""
        return _values_of(self._distributions, self.names, label)

    @property
    def distributions(self) -> Mapping[Labels, Distribution]:
        """All combinations."""
        return self._distributions

    def state(self) -> list[tuple[Labels, list[int], float]]:
        """Return all combinations, for the next supervisor."""
        return [(labels, each.counts, each.sum) for labels, each in self._distributions.items()]

    def restore(self, state: Sequence[Any]) -> None:
        """Go on from what an earlier supervisor had counted. Combinations of other labels, or in other buckets, are ignored."""
        for labels, counts, total in state:
            if len(labels) == len(self.names):
                self.merge(tuple(labels), counts, total)


def _with_value(combinations: Mapping[Labels, object], names: Labels, label: str, value: str) -> list[Labels]:
    if label not in names:
        return []
    index = names.index(label)
    return [labels for labels in combinations if labels[index] == value]


def _values_of(combinations: Mapping[Labels, object], names: Labels, label: str) -> set[str]:
    return {labels[names.index(label)] for labels in combinations} if label in names else set()
