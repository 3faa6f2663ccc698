"""The gateway process that the tests share, with a fake supervisor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.gateway.gateway_harness import GatewayHarness, running_gateway


@pytest.fixture(scope="session")
def session_harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayHarness]:
    with running_gateway(tmp_path_factory.mktemp("g") / "r", body_limit=1_000_000, spool_over=1000) as harness:
        yield harness


@pytest.fixture
def harness(session_harness: GatewayHarness) -> GatewayHarness:
    session_harness.on_request = session_harness.received.put
    for waiting in (session_harness.received, session_harness.cancelled, session_harness.others):
        with contextlib.suppress(Exception):
            while True:
                waiting.get_nowait()
    if "w1" not in session_harness.workers:
        session_harness.add_worker("w1")
    return session_harness
