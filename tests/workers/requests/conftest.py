"""A worker whose engine sends what a test says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.workers.requests.attempt_harness import Worker


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.loop.close()
