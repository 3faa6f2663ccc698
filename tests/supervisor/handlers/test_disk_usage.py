"""Calls about the disk: equal ones share a job, removals never run together, and the order has what is used now."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.disk_usage import (
    DiskJobDone,
    DiskJobFailed,
    DiskReport,
    MeasureDisk,
    PruneDisk,
    StartDiskJob,
    StoredModel,
)
from protocol.messages.model_files import CheckpointSource
from protocol.models.recipes import ModelSpec
from supervisor.handlers.disk_usage import DiskCalls
from supervisor.models.catalogues.catalogue import CatalogueEntry

REPORT = DiskReport([], 7)


class DiskHandlers:
    """The handlers without processes."""

    def __init__(self) -> None:
        self.orders: list[StartDiskJob] = []
        self.killed: list[str] = []
        self.answers: dict[int, object] = {}
        self._ended: Any = None
        self._numbers = iter(range(1, 100))
        self.timers: list[Any] = []
        entries = [
            CatalogueEntry("hub", "o/r:Q4", "llamacpp", [CheckpointSource("o/r:Q4", mmproj="*mm*")]),
            CatalogueEntry("extra.a", "a.gguf", "llamacpp", path="/extra/a.gguf", mmproj="/extra/mm.gguf"),
            CatalogueEntry(
                "z", "o/z:z", "sd-cpp", [CheckpointSource("o/z:z", parts={"vae": CheckpointSource("o/v:v")})]
            ),
            CatalogueEntry("file", "f", "sd-cpp", path="/m/f.gguf", parts={"vae": "/m/v.gguf"}),
        ]
        loaded = ModelSpec("hub", "o/r:Q4", "llamacpp", "cpu", "llm", "/hub/a.gguf", parts={"vae": "/hub/v.gguf"})
        views = [SimpleNamespace(worker="w1", spec=loaded), SimpleNamespace(worker="", spec=loaded)]
        parts: Any = {
            "loop": SimpleNamespace(call_later=lambda _s, then: self.timers.append(then)),
            "models": SimpleNamespace(all_entries=lambda: entries),
            "downloads": SimpleNamespace(running=lambda: ["running"]),
            "record": SimpleNamespace(paused_downloads={"paused": None}),
            "view": SimpleNamespace(models=lambda: views),
            "jobs": SimpleNamespace(start=self._start, dismiss=lambda _job: None, kill=self.killed.append),
            "calls": SimpleNamespace(reply=lambda _peer, number, result: self.answers.update({number: result})),
        }
        self.handlers = DiskCalls(**parts).handlers()

    def _start(self, _module: str, ended: Any, order: StartDiskJob) -> str:
        self.orders.append(order)
        self._ended = ended
        return f"job{len(self.orders)}"

    def measure(self) -> int:
        call = MeasureDisk(next(self._numbers))
        self.handlers[MeasureDisk]("g1", call, b"")
        return call.number

    def prune(self, **fields: bool) -> int:
        call = PruneDisk(next(self._numbers), **fields)
        self.handlers[PruneDisk]("g1", call, b"")
        return call.number

    def done(self, job: str) -> None:
        self.handlers[DiskJobDone](job, DiskJobDone(REPORT), b"")

    def end(self, job: str) -> None:
        self._ended(job, "killed")


@pytest.fixture
def disk() -> DiskHandlers:
    return DiskHandlers()


def test_the_order_has_all_models_and_what_is_used_now(disk: DiskHandlers) -> None:
    disk.prune(prompt_caches=True)
    assert disk.orders == [
        StartDiskJob(
            models=[
                StoredModel("hub", [("o/r:Q4", "*mm*")]),
                StoredModel("extra.a", [], ["/extra/a.gguf", "/extra/mm.gguf"]),
                StoredModel("z", [("o/z:z", "")], parts=["o/v:v"]),
                StoredModel("file", [], ["/m/f.gguf", "/m/v.gguf"]),
            ],
            downloads=["running", "paused"],
            used_files=["/hub/a.gguf", "/hub/v.gguf"],
            used_backends=["llamacpp/cpu"],
            only_unused=True,
            remove=True,
            prompt_caches=True,
        )
    ]


def test_equal_calls_share_a_job(disk: DiskHandlers) -> None:
    numbers = [disk.measure(), disk.measure(), disk.prune(dry_run=True), disk.prune(dry_run=True)]
    assert [order.remove for order in disk.orders] == [False, False]
    disk.done("job1")
    disk.measure()
    assert len(disk.orders) == 3
    disk.done("job2")
    assert disk.answers == dict.fromkeys(numbers, REPORT)


def test_two_different_removals_never_run_together(disk: DiskHandlers) -> None:
    numbers = [disk.prune(), disk.prune()]
    with pytest.raises(LemonbusError) as refused:
        disk.prune(prompt_caches=True)
    assert refused.value.failure.code is Code.CONFLICT
    disk.prune(dry_run=True, prompt_caches=True)
    disk.done("job1")
    with pytest.raises(LemonbusError):
        disk.prune(prompt_caches=True)  # its process may still be at work
    disk.end("job1")
    disk.prune(prompt_caches=True)
    assert disk.answers == dict.fromkeys(numbers, REPORT)
    assert [order.remove for order in disk.orders] == [True, False, True]


def test_a_job_that_fails_or_ends_is_answered(disk: DiskHandlers) -> None:
    failed, interrupted = disk.measure(), disk.prune()
    failure = Failure(Code.INTERNAL, "the disk could not be examined")
    disk.handlers[DiskJobFailed]("job1", DiskJobFailed(failure), b"")
    disk.timers[1]()
    assert disk.killed == ["job2"]
    disk.end("job2")
    assert disk.answers[failed] == failure
    answer = disk.answers[interrupted]
    assert isinstance(answer, Failure)
    assert "was interrupted (killed); ask again" in answer.message
    disk.prune(prompt_caches=True)  # nothing is in progress any more
