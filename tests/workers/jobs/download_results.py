"""The result of a download: its files, a part of them, or the message of its failure."""

from __future__ import annotations

from pathlib import Path

from protocol.messages.model_files import CheckpointSource, Pulled, PullFailed
from supervisor.models import files
from supervisor.models.catalogues.catalogue import CatalogueEntry
from tests.workers.jobs.in_process_downloader import InProcessDownloader
from tests.workers.jobs.job_runner import JobRunner


def found(runner: JobRunner | InProcessDownloader, *sources: CheckpointSource) -> files.ModelFiles | None:
    return files.locate(CatalogueEntry("m", sources[0].checkpoint, "llamacpp", list(sources)), str(runner.cache))


def message(result: Pulled | PullFailed, runner: JobRunner | InProcessDownloader) -> str:
    assert isinstance(result, PullFailed)
    assert str(runner.cache.parent) not in result.failure.message
    assert result.failure.model == "m"
    return result.failure.message


def partial(runner: JobRunner | InProcessDownloader) -> list[Path]:
    return [path for path in runner.cache.parent.rglob("*.incomplete") if path.stat().st_size]
