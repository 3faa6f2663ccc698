"""The harness of these tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.supervisor.node_files.transfer_harness import TransferHarness


@pytest.fixture
def harness(tmp_path: Path) -> TransferHarness:
    return TransferHarness(tmp_path)
