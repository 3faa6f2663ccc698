"""A spare worker whose supervisor may be killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.worker_process import WorkerProcess, running_worker


@pytest.fixture
def spare(tmp_path: Path) -> Iterator[WorkerProcess]:
    with running_worker(tmp_path, mortal=True) as one:
        yield one
