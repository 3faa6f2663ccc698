"""Which downloads are reported: those that run, and for a while those that have ended."""

from __future__ import annotations

from protocol.failures import Code, Failure
from protocol.messages.calls import Progress
from protocol.messages.model_files import DownloadReport
from supervisor.models.download_registry import MAX_ENDED, SHOWN_S, DownloadRegistry
from supervisor.persistence.server_record import PausedDownload

HALF = Progress(0, "a", "a.gguf", 1, 1, 50, 100)


def test_a_download_is_reported_while_it_runs_and_for_a_while_after() -> None:
    registry = DownloadRegistry()
    download = registry.begin("j1", "a", [], None)
    assert registry.reports(0.0) == [DownloadReport("a")] == [registry.report("a")]
    download.last = HALF
    assert registry.reports(1.0) == [DownloadReport("a", HALF)]
    registry.ended("j1", "exit 0")
    registry.note_end(download.report, None, 1.0)
    assert registry.reports(1.0 + SHOWN_S - 0.1) == [DownloadReport("a", HALF, ended=True)]
    assert registry.reports(1.0 + SHOWN_S) == []


def test_a_download_that_is_begun_again_is_reported_once() -> None:
    registry = DownloadRegistry()
    failure = Failure(Code.DOWNLOAD_FAILED, "no network")
    registry.note_end(DownloadReport("a"), failure, 0.0)
    assert registry.reports(0.0) == [DownloadReport("a", ended=True, failure=failure)]
    registry.begin("j2", "a", [], None)
    assert registry.reports(0.0) == [DownloadReport("a")]


def test_a_paused_download_is_reported_until_it_runs_again() -> None:
    paused = {"a": PausedDownload(None, HALF)}
    registry = DownloadRegistry(lambda: paused)
    assert registry.reports(0.0) == [DownloadReport("a", HALF, paused=True)] == [registry.report("a")]
    registry.note_end(DownloadReport("a", HALF), None, 0.0)
    assert registry.reports(0.0) == [DownloadReport("a", HALF, paused=True)]
    registry.begin("j1", "a", [], None)
    assert registry.reports(0.0) == [DownloadReport("a")], "its job still ends"


def test_the_ends_that_are_kept_are_bounded() -> None:
    registry = DownloadRegistry()
    for number in range(MAX_ENDED + 3):
        registry.note_end(DownloadReport(f"m{number}"), None, 0.0)
    assert len(registry.reports(0.0)) == MAX_ENDED
    assert registry.reports(0.0)[-1].model == f"m{MAX_ENDED + 2}"


def test_a_download_that_failed_is_listed_until_it_is_begun_again_or_dismissed() -> None:
    registry, later = DownloadRegistry(), 2 * SHOWN_S
    failure = Failure(Code.OPERATOR_CANCELLED, "cancelled")
    for name in "ab":
        registry.note_end(DownloadReport(name), failure, 0.0)
    registry.note_end(DownloadReport("done"), None, 0.0)
    assert (
        [each.model for each in registry.reports(0.0)]
        == ["a", "b", "done"]
        == [each.model for each in registry.listed(0.0)]
    )
    assert registry.reports(later) == []
    assert [each.model for each in registry.listed(later)] == ["a", "b"]
    assert registry.cancelled("a") is not None
    registry.begin("j1", "a", [], None)
    registry.dismiss("b")
    assert registry.listed(later) == [DownloadReport("a")]
    assert not registry.cancelled("a")


def test_the_files_before_the_present_one_are_summed() -> None:
    download = DownloadRegistry().begin("j1", "a", [], None)
    for index, done, total in ((1, 50, 100), (1, 100, 100), (2, 5, 10)):
        download.progressed(Progress(0, "a", f"{index}.gguf", index, 3, done, total))
    assert download.report.completed_bytes == 100
    download.progressed(Progress(0, "a", "3.gguf", 3, 3, 0, 7))
    assert download.report.completed_bytes == 110
    download.progressed(HALF)
    assert download.report == DownloadReport("a", HALF), "another source begins with its first file"
