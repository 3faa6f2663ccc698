"""How busy the processors are, from two readings of what the kernel counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.machine.processor_use import LONGEST_S, SHORTEST_S, ProcessorUse, read_times


def count(machine: Path, *ticks: int) -> None:
    """Let the kernel of a machine have counted user, nice, system, idle, waiting …"""
    (machine / "proc").mkdir(exist_ok=True)
    (machine / "proc/stat").write_text(f"cpu  {' '.join(map(str, ticks))}\ncpu0 1 2 3 4\n")


def test_a_figure_is_the_share_between_two_readings(tmp_path: Path) -> None:
    count(tmp_path, 100, 0, 50, 800, 50, 0, 0, 0, 70, 0)
    use = ProcessorUse(tmp_path)
    assert use.begin(5.0) == SHORTEST_S
    assert use.begin(5.1) == pytest.approx(SHORTEST_S - 0.1), "a second call waits for the rest"
    count(tmp_path, 130, 0, 60, 850, 60, 0, 0, 0, 90, 0)  # 40 of 100; what waits for disks is idle, guests are in user
    assert use.percent(5.0 + SHORTEST_S) == pytest.approx(40.0)
    assert use.begin(5.3) == 0.0
    assert use.percent(5.3) == pytest.approx(40.0), "soon after a figure there is no newer one"
    count(tmp_path, 130, 0, 60, 950, 60, 0, 0, 0)
    assert use.begin(6.0) == 0.0
    assert use.percent(6.0) == 0.0


def test_a_long_pause_is_not_averaged(tmp_path: Path) -> None:
    count(tmp_path, 0, 0, 0, 100, 0)
    use = ProcessorUse(tmp_path)
    use.begin(1.0)
    count(tmp_path, 100, 0, 0, 100, 0)
    now = 2.0 + LONGEST_S
    assert use.begin(now) == SHORTEST_S
    count(tmp_path, 150, 0, 0, 250, 0)
    assert use.percent(now + SHORTEST_S) == pytest.approx(25.0)


@pytest.mark.parametrize("text", ["", "cpu\n", "cpu 1 2 3\n", "intr 1 2 3 4 5\n"])
def test_a_machine_that_does_not_tell(tmp_path: Path, text: str) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/stat").write_text(text)
    use = ProcessorUse(tmp_path)
    assert use.begin(1.0) == 0.0
    assert use.percent(2.0) is None


def test_this_machine_tells() -> None:
    times = read_times(Path("/"))
    assert times is not None
    assert 0 < times.idle < times.all
