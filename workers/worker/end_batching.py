"""How long the report of an attempt's end may wait, to be sent with others. Pure.

Each report wakes the supervisor.  A report may wait only where no request can be waiting for the slot.
"""

from __future__ import annotations

from typing import Final

END_BATCH_DELAY_S: Final = 0.002
LEASED_END_DELAY_S: Final = 0.01
"""While the lease stands, its gateway uses the slot again without the supervisor."""


def end_delay(*, running: int, slots: int, lease_stands: bool, any_lease: bool) -> float:
    """Return how many seconds a report may wait, 0 for not at all.

    ``running``: attempts that have not ended; ``lease_stands``: the attempt ran under a lease that has not ended;
    ``any_lease``: there is a lease for any gateway.
    """
    if not running:
        # Reported first, so that `stats` and the next request see it.
        return 0.0
    if lease_stands:
        return LEASED_END_DELAY_S
    if running < slots / 2 and not any_lease:
        return END_BATCH_DELAY_S
    return 0.0
