"""The figures of the last requests, for a bounded number of models."""

from __future__ import annotations

from protocol.messages.health import StatsReport
from supervisor.metrics.latest_stats import MAX_STATS, LatestStats


def test_the_latest_of_the_wanted_models_is_found() -> None:
    stats = LatestStats()
    for name in ("a", "b", "a", "c"):
        stats.add(StatsReport(name))
    assert stats.latest(lambda _model: True) == StatsReport("c")
    assert stats.latest(lambda model: model != "c") == StatsReport("a")
    stats.forget("a")
    assert stats.latest(lambda model: model != "c") == StatsReport("b")
    assert stats.latest(lambda model: model == "a") is None


def test_figures_are_kept_of_a_bounded_number_of_models() -> None:
    stats = LatestStats()
    for number in range(MAX_STATS + 10):
        stats.add(StatsReport(f"m{number}"))
    for name in ("m20", "new"):
        stats.add(StatsReport(name))
    seen: list[str] = []
    assert stats.latest(lambda model: bool(seen.append(model))) is None
    assert len(seen) == MAX_STATS
    assert seen[:2] == ["new", "m20"]
    assert "m10" not in seen
