"""Pausing a download whose job has not ended yet, or was complete already."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.model_files import (
    CancelDownload,
    CheckpointSource,
    DownloadReport,
    ListDownloads,
    PauseDownload,
    Pulled,
    PullFailed,
    PullModel,
    StartPull,
)
from supervisor.handlers.models.download_outcomes import DownloadOutcomes
from supervisor.handlers.models.downloads import Downloads
from supervisor.handlers.models.pull import Pulls
from supervisor.internal_errors import InternalErrors
from supervisor.models.download_registry import DownloadRegistry
from supervisor.persistence.server_record import PausedDownload, ServerRecord

SOURCES = [CheckpointSource("o/r:Q4_0")]


class Handlers:
    """The handlers of downloads and pulls, and what they said to gateways and did to jobs."""

    def __init__(self) -> None:
        entry = SimpleNamespace(name="m", sources=SOURCES, recipe="llamacpp")
        self.record, self.calls, self.jobs = ServerRecord(), Mock(), Mock()
        self.jobs.start.side_effect = (f"job-{number}" for number in range(9))
        models = Mock(downloaded=lambda _: False)
        models.known.return_value = models.find.return_value = entry
        models.resolve.return_value = models.resolve_or_adopt.return_value = entry
        registry = DownloadRegistry(lambda: self.record.paused_downloads)
        settings: Any = SimpleNamespace(offline=False, cache_dir="/cache")
        loop, scheduler = Mock(now=lambda: 0.0), Mock()
        outcomes = DownloadOutcomes(
            cache_dir="/cache",
            loop=loop,
            registry=registry,
            record=self.record,
            models=models,
            targets=Mock(),
            scheduler=scheduler,
            calls=self.calls,
            errors=InternalErrors(),
        )
        self.downloads = Downloads(
            settings=settings,
            loop=loop,
            registry=registry,
            record=self.record,
            models=models,
            scheduler=scheduler,
            decisions=Mock(),
            jobs=self.jobs,
            calls=self.calls,
            outcomes=outcomes,
        )
        self.pulls = Pulls(
            settings=settings,
            loop=Mock(),
            models=models,
            downloads=self.downloads,
            registry=registry,
            record=self.record,
            calls=self.calls,
            errors=InternalErrors(),
        )

    def pull(self, number: int) -> None:
        self.pulls.handlers()[PullModel]("g", PullModel(number, "m"), b"")

    def pause(self, number: int) -> None:
        self.downloads.handlers()[PauseDownload]("g", PauseDownload(number, "m"), b"")

    def cancel(self, number: int, *, remove: bool = False) -> None:
        self.downloads.handlers()[CancelDownload]("g", CancelDownload(number, "m", remove), b"")

    def listed(self) -> list[DownloadReport]:
        """Return what a list of downloads says now."""
        self.downloads.handlers()[ListDownloads]("g", ListDownloads(99), b"")
        found: list[DownloadReport] = self.calls.answer.call_args.args[2]
        return found

    def report_result(self, message: Pulled | PullFailed) -> None:
        self.downloads.handlers()[type(message)]("job-0", message, b"")

    def end_job(self) -> None:
        self.jobs.start.call_args_list[0].args[1]("job-0", "killed")

    def outcome(self, number: int) -> Any:
        """Return how a pull was answered."""
        (found,) = (call.args[2] for call in self.calls.reply.call_args_list if call.args[1] == number)
        return found


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


def test_a_pull_that_comes_while_the_job_ends_begins_again_when_it_has_ended(handlers: Handlers) -> None:
    handlers.pull(1)
    handlers.pause(2)
    handlers.jobs.kill.assert_called_once_with("job-0")
    handlers.pull(3)
    handlers.calls.answer.assert_not_called()
    assert handlers.jobs.start.call_count == 1
    handlers.end_job()
    assert handlers.outcome(1).code is Code.DOWNLOAD_PAUSED
    handlers.calls.answer.assert_called_once_with("g", 2, DownloadReport("m", paused=True))
    assert handlers.jobs.start.call_count == 2
    assert not handlers.record.paused_downloads


def test_a_download_that_is_complete_when_it_is_paused_is_complete(handlers: Handlers) -> None:
    handlers.pull(1)
    handlers.pause(2)
    handlers.report_result(Pulled("m"))
    handlers.end_job()
    assert handlers.outcome(1) == Pulled("m")
    handlers.calls.answer.assert_called_once_with("g", 2, DownloadReport("m", ended=True))
    assert not handlers.record.paused_downloads


def test_a_download_that_fails_while_it_is_paused_is_paused(handlers: Handlers) -> None:
    handlers.pull(1)
    handlers.pause(2)
    handlers.report_result(PullFailed("m", Failure(Code.DOWNLOAD_FAILED, "no network")))
    handlers.end_job()
    assert handlers.outcome(1).code is Code.DOWNLOAD_PAUSED
    assert list(handlers.record.paused_downloads) == ["m"]


def test_a_complete_download_is_not_paused(handlers: Handlers) -> None:
    handlers.pull(1)
    handlers.report_result(Pulled("m"))
    with pytest.raises(LemonbusError, match="not being downloaded"):
        handlers.pause(2)


def test_the_job_of_a_download_that_was_paused_is_not_taken_over(handlers: Handlers) -> None:
    order = StartPull("m", SOURCES, "/cache")
    handlers.record.download_paused("m", PausedDownload())
    assert handlers.downloads.take_over("job-9", order) is None
    handlers.record.download_resumed("m")
    assert handlers.downloads.take_over("job-9", order) is not None


def test_a_cancelled_download_is_listed_until_it_is_removed_or_pulled_again(handlers: Handlers) -> None:
    handlers.pull(1)
    handlers.cancel(2)
    handlers.jobs.kill.assert_called_once_with("job-0")
    handlers.calls.answer.assert_not_called()
    handlers.end_job()
    assert handlers.outcome(1).code is Code.OPERATOR_CANCELLED
    (shown,) = handlers.listed()
    assert (shown.ended, shown.failure) == (True, handlers.outcome(1))
    handlers.cancel(3)
    assert handlers.calls.answer.call_args.args[2] == shown, "it stays as it is"
    handlers.cancel(4, remove=True)
    assert handlers.calls.answer.call_args.args[2] == shown
    assert handlers.listed() == []
    for remove in (False, True):
        with pytest.raises(LemonbusError, match="not being downloaded"):
            handlers.cancel(5, remove=remove)


def test_a_paused_download_is_cancelled_and_one_that_is_pausing(handlers: Handlers) -> None:
    handlers.record.download_paused("m", PausedDownload())
    handlers.cancel(1)
    assert not handlers.record.paused_downloads
    (shown,) = handlers.listed()
    assert shown.failure is not None
    assert shown.failure.code is Code.OPERATOR_CANCELLED
    handlers.pull(2)
    assert [each.ended for each in handlers.listed()] == [False]
    handlers.pause(3)
    handlers.cancel(4)
    handlers.end_job()
    assert not handlers.record.paused_downloads
    assert handlers.listed() == [shown]


def test_a_download_that_is_complete_is_not_cancelled(handlers: Handlers) -> None:
    handlers.pull(1)
    handlers.report_result(Pulled("m"))
    handlers.cancel(2)
    handlers.jobs.kill.assert_not_called()
    handlers.end_job()
    assert handlers.outcome(1) == Pulled("m")
    handlers.calls.answer.assert_called_once_with("g", 2, DownloadReport("m", ended=True))
