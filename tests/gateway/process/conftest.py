"""What the tests of a gateway process share: one of them, in a stand-in house."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.gateway.standin import StandIn, standing


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with standing(tmp_path_factory.mktemp("g") / "r", body_limit=1_000_000, spool_over=1000) as house:
        yield house


@pytest.fixture
def house(shared: StandIn) -> StandIn:
    shared.on_ask = shared.asked.put
    for news in (shared.asked, shared.cancelled, shared.others):
        with contextlib.suppress(Exception):
            while True:
                news.get_nowait()
    if "w1" not in shared.workers:
        shared.add_worker("w1")
    return shared
