"""The space on disks is asked for by a thread, which may hang without anything else doing so."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.messages.health import DiskSpace
from supervisor.machine import disk_space
from supervisor.machine.disk_space import LEAST_AGE_S, LONGEST_AGE_S, DiskSpaces
from tests.support.waiting import wait_for


class Clock:
    """A loop of which only the time is used."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.loop: Any = SimpleNamespace(now=lambda: self.time)


class FakeDisks:
    """What the kernel says of file systems; a folder in ``hanging`` gets no answer until ``release`` is set."""

    def __init__(self) -> None:
        self.free, self.hanging, self.missing = 10, set[Path](), set[Path]()
        self.release = threading.Event()
        self.asked: list[Path] = []

    def statvfs(self, path: Path) -> Any:
        self.asked.append(path)
        if path in self.hanging:
            assert self.release.wait(60)
        if path in self.missing:
            raise FileNotFoundError
        if path == Path("/broken"):
            raise PermissionError
        return SimpleNamespace(f_bavail=self.free, f_frsize=4096, f_blocks=100)


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDisks]:
    found = FakeDisks()
    monkeypatch.setattr(disk_space.os, "statvfs", found.statvfs)
    yield found
    found.release.set()


def test_the_disks_of_this_machine(tmp_path: Path) -> None:
    spaces = DiskSpaces(Clock().loop, {"cache": tmp_path / "not/yet", "state": tmp_path})
    cache, state = wait_for(lambda: found if len(found := spaces.known()) == 2 else None, "both are known")
    assert (cache.directory, state.directory) == ("cache", "state")
    assert cache.size == state.size == os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    assert 0 <= cache.free <= cache.size


def test_a_folder_that_does_not_exist_is_on_the_disk_of_its_parent(disks: FakeDisks) -> None:
    disks.missing = {Path("/a/b/c"), Path("/a/b")}
    spaces = DiskSpaces(Clock().loop, {"cache": Path("/a/b/c"), "models": Path("/broken"), "state": Path("/s")})
    wait_for(lambda: len(spaces.known()) == 2, "those that can be read are known")
    assert spaces.known() == [DiskSpace(name, 40960, 409600) for name in ("cache", "state")]
    assert disks.asked == [Path("/a/b/c"), Path("/a/b"), Path("/a"), Path("/broken"), Path("/s")]


def test_answers_are_renewed(disks: FakeDisks) -> None:
    clock = Clock()
    spaces = DiskSpaces(clock.loop, {"state": Path("/s")})
    wait_for(spaces.known, "it is known")
    disks.free = 5
    spaces.refresh()
    assert len(disks.asked) == 1  # it was asked just now
    clock.time += LEAST_AGE_S

    def renewed() -> bool:
        spaces.refresh()  # the thread of the former question may not have ended yet
        return spaces.known() == [DiskSpace("state", 20480, 409600)]

    wait_for(renewed, "the new answer is known")


def test_a_disk_that_does_not_answer_delays_nothing_and_is_left_out(disks: FakeDisks) -> None:
    clock = Clock()
    spaces = DiskSpaces(clock.loop, {"cache": Path("/s"), "state": Path("/hangs")})
    wait_for(lambda: len(spaces.known()) == 2, "both are known")
    disks.hanging.add(Path("/hangs"))
    clock.time += LEAST_AGE_S

    def asked() -> bool:
        spaces.refresh()
        return disks.asked.count(Path("/hangs")) == 2

    wait_for(asked, "it is asked again")
    for _ in range(3):
        clock.time += LONGEST_AGE_S / 2
        spaces.refresh()
    assert disks.asked.count(Path("/hangs")) == 2
    assert spaces.known() == []
