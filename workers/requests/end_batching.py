"""How long the report of an attempt's end may wait, to be sent with others and after the answer. Pure.

Each report wakes the supervisor while the answer still has to leave. A report may only wait if no request can be
waiting for the slot.
"""

from __future__ import annotations

from typing import Final

END_BATCH_DELAY_S: Final = 0.002


def end_delay(*, running: int, slots: int) -> float:
    """Return how many seconds a report may wait; 0: it is sent before the answer.

    ``running``: attempts that have not ended, except this one.
    """
    mostly_free = running + 1 <= slots / 2
    return END_BATCH_DELAY_S if mostly_free else 0.0
