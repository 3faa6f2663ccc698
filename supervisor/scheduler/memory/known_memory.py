"""What is known of the memory of one node: the last reading, and what ended engines have not given back yet. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from protocol.models.memory import Capacity
from supervisor.scheduler.memory.fitting import AvailableMemory

FREEING_S: Final = 1.0
"""For this long after its end, what an engine held may not be free yet: the kernel needs some tenths of a second for many GiB."""
SHORT_S: Final = 3.0
"""For this long after it was last said to be nearly used up, it is."""
OUTDATED_S: Final = 0.2
"""While a model waits, the memory is read at least this often: other programs also take and free some."""


class _Departure(NamedTuple):
    held: Mapping[str, int]
    until: float


class KnownMemory:
    """The last reading of each place, and what has happened since."""

    def __init__(self) -> None:
        """Nothing was read yet."""
        self.capacities: Mapping[str, Capacity] = {}
        """By place."""
        self.read_at = -math.inf
        """When that was, in monotonic seconds."""
        self.changes = 0
        """How often something has changed it that the scheduler knows of."""
        self._changes_read = -1
        """That number when it was read last."""
        self._known: Mapping[str, int] = {}
        """Bytes that were free or held by engines, by place."""
        self._known_before: Mapping[str, int] = {}
        """The same before the engines ended that may still be freeing memory."""
        self._departed: list[_Departure] = []
        self._short_until = -math.inf

    def read(self, capacities: Sequence[Capacity], held: Iterable[Mapping[str, int]], now: float) -> None:
        """Take the present memory. ``held``: what each engine holds, by place."""
        engines = list(held)
        self.capacities = {each.place: each for each in capacities}
        self._known = {
            each.place: each.free + sum(engine.get(each.place, 0) for engine in engines) for each in capacities
        }
        self.read_at, self._changes_read = now, self.changes

    def changed(self) -> None:
        """Note that the memory must be read again before anything is decided by it."""
        self.changes += 1

    @property
    def unknown(self) -> bool:
        """Whether something has changed it since it was read, so that nothing can be decided by it."""
        return self._changes_read != self.changes

    @property
    def was_read(self) -> bool:
        """Whether it was ever read."""
        return self.read_at > -math.inf

    def outdated(self, now: float, seconds: float = OUTDATED_S) -> bool:
        """Return whether the memory must be read again, because that was ``seconds`` ago or something has changed it."""
        return self.unknown or now - self.read_at >= seconds

    def short(self, now: float) -> None:
        """Note that it is nearly used up. To be told again as long as that is so."""
        self._short_until = now + SHORT_S

    @property
    def short_until(self) -> float:
        """When it is no longer said to be nearly used up, unless that is said again."""
        return self._short_until

    def is_short(self, now: float) -> bool:
        """Return whether it is nearly used up."""
        return now < self._short_until

    def engine_gone(self, held: Mapping[str, int], now: float) -> None:
        """An engine that held this memory has ended; the kernel may still be freeing it."""
        self.changed()
        self._departed = [each for each in self._departed if each.until > now]
        if not self._departed:
            self._known_before = self._known
        self._departed.append(_Departure(held, now + FREEING_S))

    def freed_at(self, now: float) -> float:
        """Return when the next engine that has ended counts as gone; infinite if all do."""
        return min((each.until for each in self._departed if each.until > now), default=math.inf)

    def available(self, host_reserve: int, device_reserve: int, now: float, node: str = "") -> AvailableMemory:
        """Return the memory for models, as it was read last. ``node``: as in :class:`AvailableMemory`."""
        departed = [each for each in self._departed if each.until > now]
        freeing = {}
        for place, known in self._known.items():
            lost = self._known_before.get(place, known) - known
            freeing[place] = min(max(0, lost), sum(each.held.get(place, 0) for each in departed))
        return AvailableMemory(self.capacities, host_reserve, device_reserve, freeing, node)
