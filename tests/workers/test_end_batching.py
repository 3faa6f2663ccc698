"""When the report of an attempt's end may wait for others."""

from __future__ import annotations

import pytest

from workers.worker.end_batching import END_BATCH_DELAY_S, LEASED_END_DELAY_S, end_delay


@pytest.mark.parametrize(
    ("running", "unreported", "lease_stands", "any_lease", "delay"),
    [
        (0, 0, False, False, END_BATCH_DELAY_S),
        (0, 0, True, True, END_BATCH_DELAY_S),
        (0, 1, False, False, END_BATCH_DELAY_S),
        (0, 2, False, False, 0.0),
        (0, 2, True, True, 0.0),
        (0, 0, False, True, 0.0),
        (1, 0, False, False, END_BATCH_DELAY_S),
        (1, 1, False, False, 0.0),
        (2, 0, False, False, 0.0),
        (3, 0, False, False, 0.0),
        (1, 0, False, True, 0.0),
        (1, 0, True, True, LEASED_END_DELAY_S),
        (3, 3, True, True, LEASED_END_DELAY_S),
    ],
)
def test_delays_with_four_slots(
    running: int, unreported: int, lease_stands: bool, any_lease: bool, delay: float
) -> None:
    given = end_delay(running=running, unreported=unreported, slots=4, lease_stands=lease_stands, any_lease=any_lease)
    assert given == delay


@pytest.mark.parametrize("slots", [1, 0])
def test_no_delay_without_another_slot(slots: int) -> None:
    assert not end_delay(running=0, unreported=0, slots=slots, lease_stands=True, any_lease=True)
