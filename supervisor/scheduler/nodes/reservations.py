"""What the last decision found for each model that waits for its load. Pure.

Later loads on the same node count with it. It stays as it is until something has changed on that node, so a decision looks
only at nodes on which something has.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from supervisor.scheduler.eviction import EVICTED, EvictionReason, LoadedModel

if TYPE_CHECKING:  # they are made from the state, which has the reservations
    from supervisor.scheduler.scheduled_model import ScheduledModel

Position = tuple[int, int, int]
"""The place in the order of decisions: the order of arrival, then of models and of their replicas."""
LAST_POSITION: Final[Position] = (1 << 62, 1 << 62, 0)
"""After all of them."""


class EvictionClaim(NamedTuple):
    """A model is to be evicted for a request of this order. ``sure``: the model to be loaded has been checked.

    Order 0: not for a request, but because the settings do not let it stay beside others.
    """

    order: int
    sure: bool
    reason: EvictionReason
    model: str = ""
    """The model to be loaded."""
    request: str = ""
    """What it is loaded for: the id of a request, or ``load``."""

    @property
    def why(self) -> str:
        """The reason in words, for the log."""
        return EVICTED if self.order else "the settings no longer allow it beside others"


class LoadReservation(NamedTuple):
    """What a model that is to be loaded has got of a node."""

    model: ScheduledModel
    node: str
    """Empty before one was found."""
    position: Position
    ahead: LoadedModel | None = None
    """The model as later loads on the node see it; None if it takes nothing there."""
    claims: Mapping[str, EvictionClaim] = {}
    """On the models that leave for it, by key."""


class LoadReservations:
    """Those of all models that wait for their loads."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._of: dict[ScheduledModel, LoadReservation] = {}
        self._on: defaultdict[str, list[LoadReservation]] = defaultdict(list)
        """Node → its reservations, by position."""

    def on(self, node: str) -> Sequence[LoadReservation]:
        """Return the reservations on a node, in the order in which they were decided."""
        return self._on.get(node, ())

    def of(self, model: ScheduledModel) -> LoadReservation | None:
        """Return the reservation of a model."""
        return self._of.get(model)

    def add(self, reservation: LoadReservation) -> None:
        """Keep what was decided. The model has no reservation yet."""
        self._of[reservation.model] = reservation
        bisect.insort(self._on[reservation.node], reservation, key=_position)

    def remove(self, model: ScheduledModel) -> LoadReservation | None:
        """Forget what was decided for a model; return that."""
        found = self._of.pop(model, None)
        if found is not None:
            own = self._on[found.node]
            del own[bisect.bisect_left(own, found.position, key=_position)]
            if not own:
                del self._on[found.node]
        return found

    def after(self, node: str, position: Position | None) -> list[LoadReservation]:
        """Return the reservations on a node behind a position, or all of them."""
        own = self._on.get(node, [])
        return own[0 if position is None else bisect.bisect_right(own, position, key=_position) :]


def _position(reservation: LoadReservation) -> Position:
    return reservation.position
