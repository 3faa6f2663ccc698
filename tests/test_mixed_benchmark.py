"""The benchmark of requests for more models than fit: its trace, and the side that serves it first come, first served."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.benchmarks.engine_alone import EngineCommand
from tests.benchmarks.mixed import (
    Arrival,
    MixedComparison,
    RequestTimes,
    TraceResult,
    engines_in_order,
    replay,
    trace,
)
from tests.fake_engines.llama_server import program


def test_a_trace_is_the_same_for_the_same_seed_and_has_the_rate() -> None:
    arrivals = trace(1, rate=1.5, seconds=600.0, models=3)
    assert arrivals == trace(1, rate=1.5, seconds=600.0, models=3) != trace(2, rate=1.5, seconds=600.0, models=3)
    assert arrivals == sorted(arrivals)
    assert 0.0 < arrivals[0].at < arrivals[-1].at < 600.0
    assert len(arrivals) == pytest.approx(900, rel=0.1)
    counts = [sum(arrival.model == model for arrival in arrivals) for model in range(3)]
    assert counts == pytest.approx([300] * 3, rel=0.2)


@pytest.mark.parametrize(("places", "loads"), [(1, 4), (2, 2)])
def test_engines_are_started_as_requests_need_them(tmp_path: Path, places: int, loads: int) -> None:
    files = [tmp_path / f"{name}.gguf" for name in "ab"]
    command = EngineCommand(
        [program(tmp_path, "well_behaved"), "-m", "/models/other.gguf", "--port", "0"], dict(os.environ)
    )
    with engines_in_order(command, files, places) as engines:
        for model in (0, 1, 0, 0, 1):
            times = engines.ask(Arrival(0.0, model), time.perf_counter())
            assert times is not None
            assert 0.0 < times.first <= times.end
        assert engines.loads == loads


def test_a_request_that_fails_is_counted_and_delays_no_other() -> None:
    arrivals = [Arrival(0.0, 0), Arrival(0.001, 1), Arrival(0.002, 2)]
    times = replay(arrivals, lambda arrival, _began: None if arrival.model == 1 else RequestTimes(1.0, arrival.model))
    assert times == [RequestTimes(1.0, 0), None, RequestTimes(1.0, 2)]


def test_a_ratio_compares_the_sides_round_by_round() -> None:
    ours = [
        TraceResult([1.0, 2.0, 3.0], [2.0, 4.0, 6.0], 0.5, 0),
        TraceResult([1.0, 2.0, 3.0], [3.0, 3.0, 3.0], 0.5, 0),
    ]
    theirs = [TraceResult([1.0] * 3, [4.0] * 3, 0.9, 0), TraceResult([1.0] * 3, [1.0, 2.0, 3.0], 0.9, 0)]
    found = MixedComparison(1, 6, ours, theirs).ratio("end", 1)
    assert (found.least, found.most) == (1.0, 1.5)
