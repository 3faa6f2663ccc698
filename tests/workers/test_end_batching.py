"""When the report of an attempt's end may wait for others."""

from __future__ import annotations

import pytest

from workers.worker.end_batching import END_BATCH_DELAY_S, LEASED_END_DELAY_S, end_delay


@pytest.mark.parametrize(
    ("running", "lease_stands", "any_lease", "delay"),
    [
        (0, False, False, 0.0),
        (0, True, True, 0.0),
        (1, False, False, END_BATCH_DELAY_S),
        (2, False, False, 0.0),
        (3, False, False, 0.0),
        (1, False, True, 0.0),
        (1, True, True, LEASED_END_DELAY_S),
        (3, True, True, LEASED_END_DELAY_S),
    ],
)
def test_delays_with_four_slots(running: int, lease_stands: bool, any_lease: bool, delay: float) -> None:
    assert end_delay(running=running, slots=4, lease_stands=lease_stands, any_lease=any_lease) == delay
