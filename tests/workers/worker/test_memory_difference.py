"""How far an engine's memory is from the estimate, from its start and while it works."""

from __future__ import annotations

from protocol.models.memory import HOST, MemoryEstimate, PlaceNeed
from workers.worker.memory_difference import LEAST_GROWTH, OUTGROWN, MemoryDifference

MIB = 1 << 20
ESTIMATE = MemoryEstimate(
    {HOST: PlaceNeed(fixed=1000 * MIB, per_token=MIB, mapped=600 * MIB, lazy=100 * MIB)}, context=50, slots=2
)
"""It is expected to use 400 MiB at its start, and 500 MiB once it has worked, beside the mapped files."""


def test_what_only_work_touches_is_not_expected_at_the_start() -> None:
    difference = MemoryDifference(ESTIMATE, 0)
    assert difference.bytes is None
    difference.started(430 * MIB)
    assert difference.bytes == 30 * MIB
    difference.started(390 * MIB)
    assert difference.bytes == -10 * MIB


def test_an_engine_at_work_may_use_what_was_expected() -> None:
    difference = MemoryDifference(ESTIMATE, 0)
    difference.started(400 * MIB)
    assert not difference.worked(500 * MIB)
    assert not difference.worked(500 * MIB + LEAST_GROWTH - 1)
    assert difference.bytes == 0
    assert difference.worked(520 * MIB)
    assert difference.bytes == 20 * MIB
    assert not difference.worked(521 * MIB)


def test_a_context_that_was_chosen_counts() -> None:
    difference = MemoryDifference(MemoryEstimate({HOST: PlaceNeed(per_token=MIB)}, slots=2), 30)
    difference.started(61 * MIB)
    assert difference.bytes == MIB


def test_without_an_estimate_all_that_is_used_is_the_difference() -> None:
    difference = MemoryDifference(MemoryEstimate(), 4096)
    difference.started(90 * MIB)
    assert difference.bytes == 90 * MIB
    assert difference.worked(100 * MIB)
    assert MemoryEstimate().corrected({HOST: 100 * MIB}).need() == {HOST: 100 * MIB}


def test_without_a_reading_there_is_no_difference() -> None:
    difference = MemoryDifference(ESTIMATE, 0)
    difference.started(0)
    assert not difference.worked(1 << 40)
    assert difference.bytes is None


def test_what_a_loading_engine_uses_counts_only_if_it_is_more_than_was_expected() -> None:
    difference = MemoryDifference(ESTIMATE, 0)
    difference.loading(399 * MIB)
    assert difference.bytes is None
    difference.loading(430 * MIB)
    difference.loading(410 * MIB)
    assert difference.bytes == 30 * MIB
    difference.loading(0)
    assert difference.bytes == 30 * MIB, "it has ended"


def test_an_engine_outgrows_what_was_known_only_by_its_work() -> None:
    difference = MemoryDifference(ESTIMATE, 0)
    difference.started(400 * MIB + 2 * OUTGROWN)
    assert difference.worked(500 * MIB + 3 * OUTGROWN - MIB)
    assert not difference.outgrown
    assert difference.worked(500 * MIB + 3 * OUTGROWN + LEAST_GROWTH)
    assert difference.outgrown
