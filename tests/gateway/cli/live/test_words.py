"""What is said of one model."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gateway.cli.live import words
from protocol.messages.engines import LoadStage
from protocol.messages.model_overview import ModelLoad, ModelOverview
from tests.gateway.cli.live.overviews import BROKEN, BUSY, IDLE, LOADING, NOW

ABSENT = ModelOverview("absent")


@pytest.mark.parametrize(
    ("model", "state"),
    [
        (BUSY, "ready"),
        (LOADING, "loading 30%, 42 s"),
        (replace(LOADING, load=ModelLoad(LoadStage.WAITING_FOR_MEMORY, NOW - 75)), "waiting for memory, 1 min"),
        (replace(LOADING, load=ModelLoad(LoadStage.COPYING, NOW - 75, node="gpu1")), "copying files (gpu1), 1 min"),
        (
            replace(LOADING, load=ModelLoad(LoadStage.WAITING_FOR_NODE, NOW - 3, done=12, total=30, node="gpu1")),
            "waiting for node gpu1, lost 12 s ago, 3 s",
        ),
        (BROKEN, "failed"),
        (ABSENT, "not loaded"),
        (replace(BUSY, state="restarting"), "engine restarts"),
        (replace(BUSY, state="draining"), "unloading"),
        (replace(BUSY, state="reloading"), "reloading"),
    ],
)
def test_its_state(model: ModelOverview, state: str) -> None:
    assert words.state_of(model, NOW) == state


@pytest.mark.parametrize(
    ("model", "use"),
    [
        (BUSY, "in use"),
        (replace(BUSY, pinned=True), "in use, pinned"),
        (IDLE, "idle 6 min, unloaded in 1 min"),
        (replace(IDLE, pinned=True), "idle 6 min, pinned"),
        (replace(IDLE, expires_at=0.0), "idle 6 min"),
        (replace(IDLE, last_use=0.0), "unloaded in 1 min"),
        (BROKEN, ""),
        (LOADING, ""),
    ],
)
def test_its_use(model: ModelOverview, use: str) -> None:
    assert words.use_of(model, NOW) == use


@pytest.mark.parametrize(
    ("model", "problem_of"),
    [
        (BUSY, "3 requests wait for one of 4 slots, the next one for about 2.5 s"),
        (replace(BUSY, waiting=1, queue=[]), "1 request waits for one of 4 slots"),
        (replace(BUSY, waiting=0), ""),
        (LOADING, "1 request waits for its load"),
        (replace(LOADING, waiting=0), ""),
        (BROKEN, "failed 3 times: the file is not a model; tried again in 9 s"),
        (replace(IDLE, tokens_per_second=4.2), "slow: 4.2 tokens/s"),
        (replace(IDLE, tokens_per_second=4.2, device="cpu"), "slow: 4.2 tokens/s on the CPU"),
        (replace(IDLE, tokens_per_second=4.2, type="audio"), ""),
        (
            replace(IDLE, first_token_p50=12.0, queue_wait_p50=2.0),
            "slow: requests waited 2.0 s for a slot, the first token comes after 12 s",
        ),
        (IDLE, ""),
        (ABSENT, ""),
    ],
)
def test_why_it_is_slow_or_not_loaded(model: ModelOverview, problem_of: str) -> None:
    assert words.problem_of(model, NOW) == problem_of


@pytest.mark.parametrize(
    ("change", "again"),
    [({"retry_at": 0.0, "failures": 1}, "failed: "), ({"retry_at": NOW - 1}, "failed 3 times: ")],
)
def test_a_failed_model_that_the_next_request_tries(change: dict[str, Any], again: str) -> None:
    assert BROKEN.failure is not None
    model = replace(BROKEN, failure=replace(BROKEN.failure, **change))
    assert words.problem_of(model, NOW) == f"{again}the file is not a model; the next request tries again"


def test_what_needs_attention_first() -> None:
    slow, calm = replace(IDLE, tokens_per_second=1.0, deaths=None), replace(IDLE, deaths=None)
    working = replace(calm, running=1)
    by_rank = [BROKEN, BUSY, slow, IDLE, working, calm, ABSENT]
    ranks = [words.attention(model, NOW) for model in by_rank]
    assert ranks == sorted(set(ranks))
    assert words.attention(IDLE, NOW + words.DAY_S) == words.attention(calm, NOW), "deaths of yesterday do not count"
