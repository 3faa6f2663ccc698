"""What the tests of the dialects share: the application, without a socket."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from protocol.runtime import logs
from tests.gateway.app_client import AppClient


@pytest.fixture(autouse=True)
def configured_logs() -> Iterator[None]:
    """A gateway's logs are configured before it hears of any request, whatever ran in this process before."""
    hook = sys.excepthook
    logs.configure("gateway", "warning", "json")
    yield
    sys.excepthook = hook
    structlog.reset_defaults()


@pytest.fixture
def ask(tmp_path: Path) -> AppClient:
    return AppClient(tmp_path)
