"""What the tests of the dialects share: the application, without a socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.answering import Answering


@pytest.fixture
def ask(tmp_path: Path) -> Answering:
    return Answering(tmp_path)
