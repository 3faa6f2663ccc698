"""What came of a download: its files, a part of them, or what is said of its failure."""

from __future__ import annotations

from pathlib import Path

from protocol.shelf import Pulled, PullFailed, Source
from supervisor import files
from supervisor.catalogue import Entry
from tests.jobs.desk import Desk
from tests.jobs.shelf import Shelf


def found(desk: Desk | Shelf, *sources: Source) -> files.Files | None:
    return files.locate(Entry("m", sources[0].checkpoint, "llamacpp", list(sources)), str(desk.cache))


def message(result: Pulled | PullFailed, desk: Desk | Shelf) -> str:
    assert isinstance(result, PullFailed)
    assert str(desk.cache.parent) not in result.failure.message
    assert result.failure.model == "m"
    return result.failure.message


def partial(desk: Desk | Shelf) -> list[Path]:
    return [path for path in desk.cache.parent.rglob("*.incomplete") if path.stat().st_size]
