"""A supervisor that takes over, for each test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.supervisor.recovery.recovery_harness import TakingOver


@pytest.fixture
def taking_over() -> Iterator[TakingOver]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="lb-") as folder:
        made = TakingOver(Path(folder))
        yield made
        made.close()
