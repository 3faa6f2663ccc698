"""The host's memory and the control groups above this process, on recorded machines, and in a real control group."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from protocol.models.memory import HOST, Capacity
from protocol.runtime.control_groups import find_cgroups
from supervisor.machine.cgroups import read_memory
from supervisor.machine.host_memory import host_capacity, process_root
from supervisor.machine.memory_reader import MachineMemory
from tests.support.control_groups import memory_group
from tests.support.fakes.recorded_host import V1_MOUNT, V2_MOUNT, RecordedHost
from tests.support.source_code import ROOT

MIB = 1 << 20
GIB = 1 << 30
UNLIMITED_V1 = 9223372036854771712


@pytest.fixture
def host(tmp_path: Path) -> RecordedHost:
    return RecordedHost(tmp_path).meminfo().process("0::/\n", V2_MOUNT.format(top="/"))


def test_a_machine_without_limits(host: RecordedHost) -> None:
    assert host_capacity(host.root) == Capacity(HOST, 24684092 << 10, 23778736 << 10)


def test_mapped_files_and_huge_pages_are_not_free(host: RecordedHost) -> None:
    host.meminfo(Mapped=4069776, Mlocked=1000000, Hugetlb=2097152)
    assert host_capacity(host.root) == Capacity(HOST, (24684092 - 2097152) << 10, (23778736 - 3000000) << 10)


def test_no_more_is_taken_off_than_the_page_cache_has(host: RecordedHost) -> None:
    host.meminfo(Mapped=9069776, Mlocked=0, Active_file=1000, Inactive_file=24)
    assert host_capacity(host.root).free == (23778736 - 1024) << 10


def test_memory_of_a_gpu_that_is_a_node_of_the_host_is_not_the_hosts(host: RecordedHost) -> None:
    grace, hopper = 480 << 20, 96 << 20
    cache = {"Active_file": 1 << 20, "Inactive_file": 2 << 20}
    host.meminfo(
        MemTotal=grace + hopper, MemFree=(440 + 90) << 20, MemAvailable=(450 + 90) << 20, Mapped=3 << 20, **cache
    )
    host.node(0, "0-71", MemTotal=grace, MemFree=440 << 20, Mapped=3 << 20, **cache)
    host.node(1, "", MemTotal=hopper, MemFree=90 << 20, Mapped=0, SReclaimable=0)
    assert host_capacity(host.root).total == (480 + 96) << 30, "it may be memory on CXL"
    host.gpu_node("0009:01:00.0", -1)
    assert host_capacity(host.root).total == (480 + 96) << 30
    host.gpu_node("0009:01:00.0", 1)
    host.gpu_node("0019:01:00.0", 1)  # a node counts once
    mapped = (3 << 30) - ((69776 + 19824) << 10)
    assert host_capacity(host.root) == Capacity(HOST, 480 << 30, (450 << 30) - mapped)


def test_page_cache_on_a_gpus_node_is_not_the_hosts(host: RecordedHost) -> None:
    host.meminfo(MemTotal=100 << 20, MemAvailable=60 << 20, MemFree=55 << 20, Active_file=5 << 20, Inactive_file=0)
    host.node(1, "", MemTotal=40 << 20, MemFree=20 << 20, Active_file=5 << 20, SReclaimable=1 << 20)
    host.gpu_node("0009:01:00.0", 1)
    assert host_capacity(host.root) == Capacity(HOST, 60 << 30, (60 - 26) << 30)


def test_a_node_with_processors_is_the_hosts(host: RecordedHost) -> None:
    host.node(0, "0-19", MemTotal=24684092, MemFree=18652828)
    host.gpu_node("0000:01:00.0", 0)
    assert host_capacity(host.root) == Capacity(HOST, 24684092 << 10, 23778736 << 10)


def test_a_kernel_that_shows_nothing_available(host: RecordedHost) -> None:
    host.write("proc/meminfo", "MemTotal: 4000 kB\nMemFree: 1000 kB\n")
    assert host_capacity(host.root) == Capacity(HOST, 4000 << 10, 1000 << 10)


def test_the_group_with_the_least_free_memory_is_named(host: RecordedHost) -> None:
    host.process("0::/ai.slice/lemonbus.service/server\n", V2_MOUNT.format(top="/"))
    host.v2("ai.slice", 10 * GIB, 9 * GIB, inactive_file=GIB)
    host.v2("ai.slice/lemonbus.service", 8 * GIB, 2 * GIB)
    assert host_capacity(host.root) == Capacity(HOST, 8 * GIB, 2 * GIB, "/ai.slice")
    host.v2("ai.slice/lemonbus.service", 8 * GIB, 7 * GIB)
    assert host_capacity(host.root) == Capacity(HOST, 8 * GIB, GIB, "/ai.slice/lemonbus.service")


def test_memory_high_is_a_limit(host: RecordedHost) -> None:
    host.process("0::/a\n", V2_MOUNT.format(top="/"))
    host.v2("a", "max", GIB, high=3 * GIB)
    assert host_capacity(host.root) == Capacity(HOST, 3 * GIB, 2 * GIB, "/a")
    host.v2("a", 2 * GIB, GIB, high=3 * GIB)
    assert host_capacity(host.root) == Capacity(HOST, 2 * GIB, GIB, "/a")


def test_page_cache_is_free_unless_it_is_mapped(host: RecordedHost) -> None:
    host.process("0::/a\n", V2_MOUNT.format(top="/"))
    cache = {"inactive_file": 200 * MIB, "active_file": 100 * MIB, "slab_reclaimable": 10 * MIB}
    host.v2("a", 450 * MIB, 440 * MIB, **cache)
    assert host_capacity(host.root).free == 320 * MIB
    host.v2("a", 450 * MIB, 440 * MIB, **cache, file_mapped=270 * MIB, shmem=20 * MIB)
    assert host_capacity(host.root).free == 70 * MIB


def test_a_group_that_is_over_its_limit_leaves_nothing(host: RecordedHost) -> None:
    host.process("0::/a\n", V2_MOUNT.format(top="/"))
    host.v2("a", "max", 4 * GIB, high=3 * GIB)
    assert host_capacity(host.root) == Capacity(HOST, 3 * GIB, 0, "/a")


def test_a_container_sees_only_its_own_group(host: RecordedHost) -> None:
    host.v2("", 450 * MIB, 50 * MIB)
    assert host_capacity(host.root) == Capacity(HOST, 450 * MIB, 400 * MIB, "/")


def test_version_1(host: RecordedHost) -> None:
    host.process("3:cpuset:/\n4:memory:/docker/ab12\n", V1_MOUNT.format(top="/"))
    host.v1("", UNLIMITED_V1, 5 * GIB, total_cache=GIB)
    host.v1("docker", UNLIMITED_V1, 4 * GIB)
    cache = {"total_cache": 300 * MIB, "total_inactive_file": 250 * MIB, "total_active_file": 50 * MIB}
    host.v1("docker/ab12", GIB, 800 * MIB, inactive_file=1, **cache, total_mapped_file=100 * MIB)
    assert host_capacity(host.root) == Capacity(HOST, GIB, (1024 - 800 + 200) * MIB, "/docker/ab12")


def test_a_container_of_version_1_shows_the_limit_of_what_is_above_it(host: RecordedHost) -> None:
    host.process("4:memory:/kubepods/pod7/c1\n", V1_MOUNT.format(top="/kubepods/pod7/c1"))
    host.v1("", UNLIMITED_V1, GIB, hierarchical_memory_limit=2 * GIB)
    assert host_capacity(host.root) == Capacity(HOST, 2 * GIB, GIB, "/kubepods/pod7/c1")


def test_in_a_hybrid_machine_the_hierarchy_that_counts_memory_is_read(host: RecordedHost) -> None:
    unified = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
    mounts = f"{V1_MOUNT.format(top='/')}\n{unified}"
    host.process("4:memory:/a\n0::/b\n", mounts)
    host.v1("a", GIB, 0)
    assert [group.name for group in find_cgroups(host.root)] == ["/a", "/"]
    host.process("2:cpu:/\n0::/b\n", mounts)
    assert [(group.name, group.version) for group in find_cgroups(host.root)] == [("/b", 2), ("/", 2)]
    assert find_cgroups(host.root)[0].path == host.root / "sys/fs/cgroup/unified/b"


def test_of_two_mounts_the_one_with_more_of_the_tree_is_read(host: RecordedHost) -> None:
    whole = V2_MOUNT.format(top="/").replace("/sys/fs/cgroup", r"/a\040folder")
    host.process("0::/pods/c1\n", f"{V2_MOUNT.format(top='/pods/c1')}\n{whole}\n{V2_MOUNT.format(top='/other')}")
    assert [group.path for group in find_cgroups(host.root)] == [
        host.root / "a folder/pods/c1",
        host.root / "a folder/pods",
        host.root / "a folder",
    ]


@pytest.mark.parametrize(
    ("cgroup", "mounts"),
    [
        pytest.param("", "", id="no control groups"),
        pytest.param("0::/../other\n", V2_MOUNT.format(top="/"), id="outside the namespace"),
        pytest.param("0::/a\n", V2_MOUNT.format(top="/b"), id="not mounted"),
        pytest.param("0::/a\n", "garbage\n29 23 - cgroup2", id="unreadable"),
    ],
)
def test_groups_that_are_not_visible_limit_nothing(host: RecordedHost, cgroup: str, mounts: str) -> None:
    host.process(cgroup, mounts)
    assert find_cgroups(host.root) == []
    assert host_capacity(host.root).total == 24684092 << 10


def test_a_group_that_is_gone_or_unreadable_limits_nothing(host: RecordedHost) -> None:
    host.process("0::/a/b\n", V2_MOUNT.format(top="/"))
    host.v2("a", "max", GIB)
    assert [read_memory(group) for group in find_cgroups(host.root)] == [None, None, None]
    assert host_capacity(host.root).limit == ""


def test_the_own_groups_are_read_where_this_process_sees_them(tmp_path: Path) -> None:
    assert process_root(tmp_path) == Path("/")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/self").symlink_to("1")
    (tmp_path / "proc/1").mkdir()
    assert process_root(tmp_path) == Path("/")  # the mounted proc of a container's host


def test_this_machine_has_memory_now() -> None:
    host, *devices = MachineMemory("/", list).read()
    assert host.place == HOST
    assert host.total > 1 << 28
    assert 0 < host.free <= host.total
    assert devices == []


# ---- a real control group ----------------------------------------------------------------------------------------

IN_GROUP = """
import sys
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text("0")
import msgspec
from supervisor.machine.host_memory import host_capacity
before = host_capacity(Path("/"))
kept = b"x" * (32 << 20)
print(msgspec.json.encode([before, host_capacity(Path("/"))]).decode())
"""


@pytest.fixture
def real_group() -> Iterator[Path]:
    """A control group with a limit of 256 MiB, below this process's own one."""
    with memory_group(256 * MIB) as group:
        yield group


def test_a_process_in_a_real_group(real_group: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_GROUP, str(real_group)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    before, after = msgspec.json.decode(done.stdout, type=list[Capacity])
    assert (before.total, before.limit.rsplit("/", 1)[-1]) == (256 * MIB, real_group.name)
    assert 0 < before.free < 256 * MIB
    assert 30 * MIB < before.free - after.free < 40 * MIB
