"""Requests for a model that is not downloaded: one download serves them all, and after a failure there is not another one for each."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.work import SubmitRequest
from supervisor.scheduler.inputs import ModelTarget
from tests.supervisor.scheduler.simulation import Simulation, spec

UNREACHABLE = Failure(Code.DOWNLOAD_FAILED, "no answer", model="a")


def ask(sim: Simulation, number: int) -> RequestKey:
    key = RequestKey("g1", number, 1)
    sim.live[key] = "a"
    wanted = SubmitRequest(number, 1, "a", "chat/completions", "label")
    sim.scheduler.request_submitted(key, wanted, b"", ModelTarget("a", "llm", None), sim.now)
    sim.settle()
    return key


def fail(sim: Simulation, failure: Failure) -> None:
    sim.scheduler.download_ended("a", None, failure, sim.now)
    sim.settle()


def test_one_download_serves_all_waiting_requests() -> None:
    sim = Simulation()
    keys = [ask(sim, 7001), ask(sim, 7002)]
    assert sim.fetches == ["a"]
    sim.scheduler.download_ended("a", spec("a"), None, sim.now)
    sim.settle()
    sim.run_until_idle()
    assert set(keys) <= set(sim.order)


@pytest.mark.parametrize("code", [Code.DOWNLOAD_FAILED, Code.INSUFFICIENT_STORAGE])
def test_after_a_failed_download_the_next_backs_off_with_retry_after(code: Code) -> None:
    sim = Simulation()
    for index, pause in enumerate([1.0, 2.0, 4.0]):
        first = ask(sim, 7100 + index)
        assert sim.fetches == ["a"] * (index + 1)
        fail(sim, replace(UNREACHABLE, code=code))
        assert (sim.refusals[first].code, sim.refusals[first].retry_after) == (code, pause)
        sim.pass_time(pause / 2)
        sooner = sim.refusals[ask(sim, 7200 + index)]
        assert (sooner.code, sooner.retry_after) == (Code.BACKING_OFF, pytest.approx(pause / 2))
        assert "no answer" in sooner.message
        sim.pass_time(pause / 2)


def test_a_repository_that_does_not_exist_is_not_asked_for_by_each_request() -> None:
    sim = Simulation()
    absent = Failure(Code.CHECKPOINT_NOT_FOUND, "no such repository", model="a")
    first = ask(sim, 7001)
    fail(sim, absent)
    assert sim.refusals[first] == absent
    assert sim.refusals[ask(sim, 7002)] == absent
    assert sim.fetches == ["a"]


def test_a_model_that_was_downloaded_after_all_is_used_at_once() -> None:
    sim = Simulation()
    ask(sim, 7001)
    fail(sim, UNREACHABLE)
    sim.scheduler.download_ended("a", spec("a"), None, sim.now)
    key = ask(sim, 7002)
    sim.run_until_idle()
    assert key in sim.order


@pytest.mark.parametrize("code", [Code.OFFLINE, Code.OVERLOADED, Code.UNLOADED, Code.DOWNLOAD_PAUSED])
def test_a_refused_download_delays_nothing(code: Code) -> None:
    sim = Simulation()
    ask(sim, 7001)
    fail(sim, Failure(code, "no", model="a"))
    ask(sim, 7002)
    assert sim.fetches == ["a", "a"]
