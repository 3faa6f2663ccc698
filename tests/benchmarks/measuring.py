"""Arithmetic and clocks of the benchmarks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

_STEP = 0.001


def until(condition: Callable[[], object], limit: float = 10.0) -> float:
    """Poll every millisecond; return the seconds until the condition held."""
    started = time.perf_counter()
    while not condition():
        if time.perf_counter() - started > limit:
            raise TimeoutError(f"not within {limit:g} s")
        time.sleep(_STEP)
    return time.perf_counter() - started


def median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0


class Spread(msgspec.Struct):
    """A figure over all rounds."""

    median: float
    least: float
    most: float


def spread(values: list[float]) -> Spread:
    return Spread(median(values), min(values), max(values))


def percentile(values: list[float], part: float) -> float:
    """Return the value below which ``part`` of the values are."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def processor_seconds(pids: Iterable[int]) -> float:
    """Return the processor time of processes so far; to the nanosecond, unlike ``/proc/PID/stat``."""
    files = [file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9
