"""Requests for a model that is not here yet: one download for all, and none anew for each after it failed."""

from __future__ import annotations

import pytest

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.work import Ask
from supervisor.board import Target
from tests.supervisor.world import World, spec

UNREACHABLE = Failure(Code.DOWNLOAD_FAILED, "nobody answers", model="a")


def ask(world: World, number: int) -> RequestKey:
    key = RequestKey("g1", number, 1)
    world.live[key] = "a"
    wanted = Ask(number, 1, "a", "chat/completions", "label")
    world.scheduler.asked(key, wanted, b"", Target("a", "llm", None), world.now)
    world.settle()
    return key


def fail(world: World, failure: Failure) -> None:
    world.scheduler.fetched("a", None, failure, world.now)
    world.settle()


def test_one_download_serves_all_who_wait() -> None:
    world = World()
    keys = [ask(world, 7001), ask(world, 7002)]
    assert world.fetches == ["a"]
    world.scheduler.fetched("a", spec("a"), None, world.now)
    world.settle()
    world.calm()
    assert set(keys) <= set(world.order)


def test_after_a_download_that_failed_the_next_waits_and_who_comes_sooner_is_told_how_long() -> None:
    world = World()
    for turn, pause in enumerate([1.0, 2.0, 4.0]):
        first = ask(world, 7100 + turn)
        assert world.fetches == ["a"] * (turn + 1)
        fail(world, UNREACHABLE)
        assert (world.refusals[first].code, world.refusals[first].retry_after) == (Code.DOWNLOAD_FAILED, pause)
        world.pass_time(pause / 2)
        sooner = world.refusals[ask(world, 7200 + turn)]
        assert (sooner.code, sooner.retry_after) == (Code.BACKING_OFF, pytest.approx(pause / 2))
        assert "nobody answers" in sooner.message
        world.pass_time(pause / 2)


def test_what_was_downloaded_after_all_is_used_at_once() -> None:
    world = World()
    ask(world, 7001)
    fail(world, UNREACHABLE)
    world.scheduler.fetched("a", spec("a"), None, world.now)
    key = ask(world, 7002)
    world.calm()
    assert key in world.order


@pytest.mark.parametrize("code", [Code.OFFLINE, Code.OVERLOADED, Code.UNLOADED])
def test_what_is_no_fault_of_the_download_delays_nothing(code: Code) -> None:
    world = World()
    ask(world, 7001)
    fail(world, Failure(code, "no", model="a"))
    ask(world, 7002)
    assert world.fetches == ["a", "a"]
