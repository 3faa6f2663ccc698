"""When memory counts as nearly used up: recorded readings, and recorded files of both versions of control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.runtime.control_groups import find_cgroups
from supervisor.machine.memory_pressure import (
    PressureJudge,
    PressureReading,
    is_near,
    least_headroom,
    read_pressure,
)
from tests.support.fakes.recorded_host import MEMINFO, V1_MOUNT, V2_MOUNT, RecordedHost

MIB = 1 << 20
GIB = 1 << 30
STALLS = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"


def reading(
    headroom: int, free: int = 4 * GIB, *, limit: int = 16 * GIB, stalled: int = 0, group: str = ""
) -> PressureReading:
    return PressureReading(group, limit, free, headroom, stalled)


def test_a_place_is_short_when_nearly_nothing_is_left_before_the_kernel_kills() -> None:
    judge = PressureJudge()
    assert judge.judge([reading(600 * MIB)], 0.0) is None
    short = judge.judge([reading(500 * MIB)], 1.0)
    assert short is not None
    assert short.reading.headroom == 500 * MIB


def test_it_stays_short_until_there_is_twice_as_much() -> None:
    judge = PressureJudge()
    judge.judge([reading(500 * MIB)], 0.0)
    assert judge.judge([reading(1000 * MIB)], 1.0) is not None
    assert judge.judge([reading(1100 * MIB)], 2.0) is None
    assert judge.judge([reading(1000 * MIB)], 3.0) is None


@pytest.mark.parametrize(
    ("free", "stalls_per_second", "is_short"),
    [
        (900 * MIB, 200_000, True),
        (900 * MIB, 50_000, False),
        (2 * GIB, 900_000, False),
    ],
    ids=["stalls and little is free", "hardly stalls", "stalls although much is free"],
)
def test_stalls_count_while_little_is_free(free: int, stalls_per_second: int, is_short: bool) -> None:
    judge = PressureJudge()
    found = [judge.judge([reading(8 * GIB, free, stalled=n * stalls_per_second)], float(n)) for n in range(4)]
    assert found[0] is None, "one reading says nothing about stalls"
    assert all((each is not None) == is_short for each in found[1:])


def test_stalls_are_measured_over_a_second_however_often_it_is_read() -> None:
    judge = PressureJudge()
    found = [judge.judge([reading(8 * GIB, 0, stalled=n * 50_000)], n / 10) for n in range(20)]
    assert [each is not None for each in found] == [False] * 10 + [True] * 10


def test_the_place_that_is_shortest_in_proportion_is_named() -> None:
    places = [reading(100 * MIB), reading(7 * MIB, limit=64 * MIB, group="/small"), reading(8 * MIB, group="/large")]
    found = PressureJudge().judge(places, 0.0)
    assert found is not None
    assert found.reading.group == "/large"


def test_how_much_must_be_left() -> None:
    assert least_headroom(64 * MIB) == 8 * MIB
    assert least_headroom(2 * GIB) == 64 * MIB
    assert least_headroom(512 * GIB) == 512 * MIB
    assert least_headroom(2 * GIB, 40 * MIB) == 20 * MIB, "less than a reserve that the operator has chosen"
    assert least_headroom(2 * GIB, 8 * GIB) == 64 * MIB
    assert least_headroom(2 * GIB, 0) == 0
    assert is_near([reading(8 * GIB), reading(3 * GIB)])
    assert not is_near([reading(8 * GIB)])


@pytest.fixture
def host(tmp_path: Path) -> RecordedHost:
    host = RecordedHost(tmp_path).meminfo(SwapFree=1024).process("0::/\n", V2_MOUNT.format(top="/"))
    host.write("proc/pressure/memory", STALLS.format(77))
    return host


def test_the_machine(host: RecordedHost) -> None:
    total, available = MEMINFO["MemTotal"] << 10, MEMINFO["MemAvailable"] << 10
    assert read_pressure(host.root, []) == [PressureReading("", total, available, available + MIB, 77)]


def test_a_group_of_version_2(host: RecordedHost) -> None:
    host.process("0::/a/b\n", V2_MOUNT.format(top="/"))
    host.v2("a/b", "max", 300 * MIB)
    host.v2(
        *("a", 400 * MIB, 390 * MIB),
        inactive_file=100 * MIB,
        active_file=50 * MIB,
        file_mapped=60 * MIB,
        slab_reclaimable=10 * MIB,
    )
    host.write("sys/fs/cgroup/a/memory.pressure", STALLS.format(123))
    found = read_pressure(host.root, find_cgroups(host.root))[1:]
    assert found == [PressureReading("/a", 400 * MIB, 110 * MIB, 170 * MIB, 123)]


def test_a_group_of_version_1_has_the_stalls_of_the_machine(host: RecordedHost) -> None:
    host.process("4:memory:/box\n", V1_MOUNT.format(top="/"))
    host.v1(
        *("box", 450 * MIB, 440 * MIB),
        cache=0,
        total_cache=40 * MIB,
        total_active_file=40 * MIB,
        total_mapped_file=30 * MIB,
    )
    found = read_pressure(host.root, find_cgroups(host.root))[1:]
    assert found == [PressureReading("/box", 450 * MIB, 20 * MIB, 50 * MIB, 77)]
