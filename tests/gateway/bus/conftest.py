"""A session whose supervisor has welcomed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.bus.session_harness import SessionHarness


@pytest.fixture
def gateway(tmp_path: Path) -> SessionHarness:
    one = SessionHarness(tmp_path)
    one.welcome()
    return one
