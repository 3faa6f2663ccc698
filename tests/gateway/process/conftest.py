"""The gateway process that the tests share, with a fake supervisor."""

from __future__ import annotations

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
    session_harness.forget()
    if "w1" not in session_harness.workers:
        session_harness.add_worker("w1")
    return session_harness
