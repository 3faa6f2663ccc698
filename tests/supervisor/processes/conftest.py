"""A supervisor that orders processes of a fork server, as a fixture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.supervisor.processes.fork_orders_harness import Orders


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Orders]:
    with ExitStack() as stack:
        yield Orders(tmp_path, stack)
