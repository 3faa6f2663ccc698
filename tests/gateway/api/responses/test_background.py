"""How many responses run in the background: no API key can take all places."""

from __future__ import annotations

import pytest

from gateway.api.responses.background import MAX_RUNS, RunningResponses
from protocol.failures import Code, LemonbusError


def _run(running: RunningResponses, api_key: str, size: int) -> bool:
    """Return whether another response may run, and start it if so."""
    try:
        running.check(api_key, size)
    except LemonbusError as problem:
        return problem.failure.code is not Code.OVERLOADED
    running.add(api_key, size)
    return True


def test_one_key_leaves_half_of_the_places_to_others() -> None:
    running = RunningResponses(1_000_000)
    assert [_run(running, "greedy", 10) for _ in range(MAX_RUNS)].count(True) == MAX_RUNS // 2
    assert [_run(running, "modest", 10) for _ in range(MAX_RUNS)].count(True) == MAX_RUNS // 2
    assert not _run(running, "third", 10)
    running.remove("greedy", 10)
    assert _run(running, "third", 10)


@pytest.mark.parametrize(("api_key", "accepted"), [("greedy", 5), ("", 10)])
def test_bytes_are_shared_in_the_same_way_and_without_keys_there_is_one_share(api_key: str, accepted: int) -> None:
    running = RunningResponses(1_000)
    assert [_run(running, api_key, 100) for _ in range(20)].count(True) == accepted


def test_one_alone_may_be_as_large_as_a_request() -> None:
    assert _run(RunningResponses(10), "greedy", 100)
