"""Where groups for engines may be made, on recorded trees of both versions. Real groups are in ``tests/workers/engine``."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.runtime.control_groups import (
    CPU,
    MEMORY,
    enable_controllers,
    kernel_kills,
    parent_of_engines,
    worker_of,
)
from tests.support.fakes.recorded_host import V1_MOUNT, V2_MOUNT, RecordedHost

SERVICE = "system.slice/lemonbus.service"
CPU_MOUNT = "36 31 0:33 {top} /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:10 - cgroup cgroup rw,cpu,cpuacct"


@pytest.fixture
def host(tmp_path: Path) -> RecordedHost:
    return RecordedHost(tmp_path)


def service(host: RecordedHost, own: str, enabled: str) -> Path:
    """A service with version 2. ``own``: the group of the server below it. Return the group of the service."""
    host.process(f"0::/{SERVICE}{own}\n", V2_MOUNT.format(top="/"))
    host.write(f"sys/fs/cgroup/{SERVICE}/cgroup.subtree_control", f"{enabled}\n")
    host.write(f"sys/fs/cgroup/{SERVICE}{own}/cgroup.procs", "1\n")
    return host.root / "sys/fs/cgroup" / SERVICE


def test_beside_the_group_of_the_server_in_a_service_that_is_delegated(host: RecordedHost) -> None:
    folder = service(host, "/lemonbus-server", "cpu memory")
    for controller in (MEMORY, CPU):
        parent = parent_of_engines(controller, host.root)
        assert parent is not None
        assert (parent.path, parent.version) == (folder, 2)


def test_only_for_controllers_that_are_enabled(host: RecordedHost) -> None:
    service(host, "/lemonbus-server", "memory")
    assert parent_of_engines(CPU, host.root) is None


def test_they_are_enabled_where_the_server_has_a_group_of_its_own(host: RecordedHost) -> None:
    folder = service(host, "/lemonbus-server", "")
    enable_controllers(host.root)
    assert (folder / "cgroup.subtree_control").read_text() == "+memory", "each was written, one after the other"


@pytest.mark.parametrize("own", ["", "/other"])
def test_nowhere_if_the_service_itself_has_processes(host: RecordedHost, own: str) -> None:
    folder = service(host, own, "cpu memory")
    assert parent_of_engines(MEMORY, host.root) is None
    enable_controllers(host.root)
    assert (folder / "cgroup.subtree_control").read_text() == "cpu memory\n", "it is left as it is"


def test_nowhere_if_only_the_group_of_the_server_is_visible(host: RecordedHost) -> None:
    mount = V2_MOUNT.format(top=f"/{SERVICE}/lemonbus-server")
    host.process(f"0::/{SERVICE}/lemonbus-server\n", mount)
    assert parent_of_engines(MEMORY, host.root) is None


def test_below_the_own_group_in_version_1(host: RecordedHost) -> None:
    mounts = "\n".join([V1_MOUNT.format(top="/"), CPU_MOUNT.format(top="/")])
    host.process("7:cpu,cpuacct:/box\n4:memory:/a/b\n0::/\n", mounts)
    folders = {CPU: "cpu,cpuacct/box", MEMORY: "memory/a/b"}
    for controller, folder in folders.items():
        host.write(f"sys/fs/cgroup/{folder}/cgroup.procs", "1\n")
        parent = parent_of_engines(controller, host.root)
        assert parent is not None
        assert (parent.path, parent.version) == (host.root / "sys/fs/cgroup" / folder, 1)


def test_nowhere_if_nothing_is_mounted(host: RecordedHost) -> None:
    host.process("4:memory:/a\n0::/\n", "")
    assert parent_of_engines(MEMORY, host.root) is None
    assert parent_of_engines(CPU, host.root) is None


def test_the_names_of_groups_and_what_the_kernel_has_killed(tmp_path: Path) -> None:
    assert worker_of(tmp_path / "lemonbus-engine-123") == 123
    assert worker_of(tmp_path / "lemonbus-engine-") == worker_of(tmp_path / "lemonbus-server") == 0
    assert kernel_kills(tmp_path) == 0
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert kernel_kills(tmp_path) == 2
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 5\noom_kill 3\n")
    assert kernel_kills(tmp_path) == 3
