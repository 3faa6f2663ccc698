"""The job that talks to Ray: what it does when the thread that does so cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.config.settings import Settings
from protocol.messages.ray_cluster import RayClusterReport, WatchRayCluster
from protocol.runtime.loop import Loop
from protocol.wire.bus_address import BusAddress, ClusterMembership
from protocol.wire.curve import new_cluster_keys
from workers.jobs.job import JobProcess
from workers.jobs.ray_cluster import __main__ as ray_job

END = 30.0


class FakeJob:
    """A job process without a supervisor."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.settings = Settings(ray_address="auto")
        self.reports: list[RayClusterReport] = []
        self.on_report: Callable[[], None] = lambda: None
        self.ended_in_time = True
        self.loop.call_later(END, self._time_out)

    def _time_out(self) -> None:
        self.ended_in_time = False
        self.loop.stop()

    def report(self, report: RayClusterReport) -> None:
        self.reports.append(report)
        self.on_report()

    def work(self, function: Callable[[], Any], done: Callable[[Any], None]) -> None:
        JobProcess.work(self, function, done)  # type: ignore[arg-type]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeJob:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    job = FakeJob()
    membership = ClusterMembership("127.0.0.1:7000", new_cluster_keys().of_member())
    context: Any = SimpleNamespace(boot="b1", bus=BusAddress(tmp_path, membership))
    created: Any = job
    ray_job.RayJob(created, context)
    return job


class Broken:
    """A driver whose thread fails."""

    called_at = 0.0

    def __init__(self, *_: object) -> None:
        pass

    def run(self) -> None:
        raise RuntimeError("Ray broke")


def test_a_job_whose_thread_fails_ends_so_that_another_one_is_started(
    job: FakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_job, "RayDriver", Broken)
    job.settings = Settings(ray_address="10.0.0.1:6379")
    job.on_message(WatchRayCluster("1"))  # type: ignore[attr-defined]
    job.loop.run()
    assert job.ended_in_time


def test_a_machine_that_joins_a_cluster_later_is_found(
    job: FakeJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_job, "RayDriver", Broken)
    monkeypatch.setattr(ray_job, "RETRY_S", 0.01)
    job.on_message(WatchRayCluster("1"))  # type: ignore[attr-defined]
    assert "belongs to no Ray cluster" in job.reports[-1].problem
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("10.0.0.1:6379")
    job.loop.run()
    assert job.ended_in_time
