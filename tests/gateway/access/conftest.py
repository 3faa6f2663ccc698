"""The application with a state directory of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gateway.app_client import AppClient

MakeApp = Callable[..., AppClient]


@pytest.fixture
def make_app(tmp_path: Path) -> MakeApp:
    return lambda **settings: AppClient(tmp_path, **{"state_dir": str(tmp_path), **settings})
