"""Fixtures for tests of the dialects: the application without a socket."""

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
    """Configure the logs as a gateway does before its first request, whatever test ran in this process before."""
    hook = sys.excepthook
    logs.configure("gateway", "warning", "json")
    yield
    sys.excepthook = hook
    structlog.reset_defaults()


@pytest.fixture
def ask(tmp_path: Path) -> AppClient:
    return AppClient(tmp_path)
