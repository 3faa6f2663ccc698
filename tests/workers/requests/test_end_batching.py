"""When the report of an attempt's end may wait for others."""

from __future__ import annotations

import pytest

from workers.requests.end_batching import END_BATCH_DELAY_S, end_delay


@pytest.mark.parametrize(
    ("running", "slots", "delay"),
    [
        (0, 1, 0.0),
        (0, 2, END_BATCH_DELAY_S),
        (1, 2, 0.0),
        (0, 4, END_BATCH_DELAY_S),
        (1, 4, END_BATCH_DELAY_S),
        (2, 4, 0.0),
        (3, 4, 0.0),
        (0, 0, 0.0),
    ],
)
def test_an_end_waits_only_while_half_of_the_slots_are_free(running: int, slots: int, delay: float) -> None:
    assert end_delay(running=running, slots=slots) == delay
