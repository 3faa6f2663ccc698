"""Fixtures for tests of workers: a real spare worker, and one that has loaded a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.direct_engine import spec_of
from tests.workers.worker_process import WorkerProcess, running_worker


@pytest.fixture
def spare(tmp_path: Path) -> Iterator[WorkerProcess]:
    with running_worker(tmp_path) as one:
        yield one


@pytest.fixture
def chat(spare: WorkerProcess) -> WorkerProcess:
    spare.load(spec_of("tiny-chat"))
    spare.subscribe()
    return spare


@pytest.fixture
def loop(spare: WorkerProcess) -> WorkerProcess:
    spare.load(spec_of("tiny-loop", ctx_size=100_000))
    spare.subscribe()
    return spare
