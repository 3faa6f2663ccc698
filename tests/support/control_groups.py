"""Real control groups with a limit on memory, below this process's own one."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from protocol.runtime.control_groups import Cgroup, find_cgroups
from supervisor.machine.cgroups import read_memory
from tests.support.waiting import wait_for

_LIMITS = {1: "memory.limit_in_bytes", 2: "memory.max"}


@contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """Make a group whose processes may use ``limit`` bytes together; skip the test where that is impossible."""
    groups = find_cgroups(Path("/"))
    if not groups:
        pytest.skip("no control group that counts memory is visible here")
    path = groups[0].path / f"lemonbus-test-{secrets.token_hex(4)}"
    try:
        path.mkdir()
        (path / _LIMITS[groups[0].version]).write_text(str(limit))
    except OSError as problem:
        if path.is_dir():
            path.rmdir()
        pytest.skip(f"no control group with a limit can be made here: {problem}")
    yield path
    wait_for(lambda: _removed(path), "the control group has no process left")


def used_memory(group: Path) -> int:
    """Return the bytes of a group that the kernel cannot take back."""
    memory = read_memory(Cgroup("", group, find_cgroups(Path("/"))[0].version))
    assert memory is not None
    return memory.kept


def limit_memory(group: Path, limit: int) -> None:
    """Change the limit of a group."""
    (group / _LIMITS[find_cgroups(Path("/"))[0].version]).write_text(str(limit))


def kernel_kills(group: Path) -> int:
    """Return how many processes of a group, without those below it, the kernel has killed."""
    for file in ("memory.oom_control", "memory.events"):
        if (group / file).exists():
            counters = dict(line.split() for line in (group / file).read_text().splitlines())
            return int(counters["oom_kill"])
    raise AssertionError("the group does not count the kernel's kills")


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return False
    return True
