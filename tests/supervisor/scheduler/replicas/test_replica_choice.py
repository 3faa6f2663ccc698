"""Models with several engines: which one gets a request."""

from __future__ import annotations

import pytest

from tests.supervisor.scheduler.replicas.replicated_model import replicated, runs_on, worker


def prompt(text: str, turns: int = 1) -> bytes:
    turn = f'{{"role":"user","content":"{text * 300}"}}'
    return f'{{"model":"a","messages":[{",".join([turn] * turns)}],"stream":true}}'.encode()


def test_requests_are_spread_and_run_at_once_on_all_engines() -> None:
    sim = replicated()
    keys = [sim.submit("a") for _ in range(5)]
    assert [runs_on(sim, key) for key in keys] == [1, 2, 1, 2, 0]
    sim.finish(keys[1])
    assert runs_on(sim, keys[4]) == 2


def test_a_conversation_stays_where_its_prompt_is_known() -> None:
    sim = replicated()
    busy = sim.submit("a", payload=prompt("x"))
    first = sim.submit("a", payload=prompt("y"))
    assert [runs_on(sim, busy), runs_on(sim, first)] == [1, 2]
    sim.finish(first)
    sim.finish(busy)
    for turns in (2, 3):
        follows, other = (sim.submit("a", payload=prompt(text, turns)) for text in "yx")
        assert [runs_on(sim, follows), runs_on(sim, other)] == [2, 1]
        sim.finish(follows)
        sim.finish(other)


def test_a_known_prompt_waits_for_no_engine_while_another_one_has_a_free_slot() -> None:
    sim = replicated()
    sim.finish(sim.submit("a", payload=prompt("x")))
    keys = [sim.submit("a", payload=prompt("x", 2)) for _ in range(4)]
    assert [runs_on(sim, key) for key in keys] == [1, 1, 2, 2]


@pytest.mark.parametrize("code", ["cancelled", "backend_error"])
def test_a_request_that_failed_teaches_nothing(code: str) -> None:
    sim = replicated()
    failed = sim.submit("a", payload=prompt("x"))
    assert runs_on(sim, failed) == 1
    sim.pass_time(1)
    sim.finish(failed, code)
    again = sim.submit("a", payload=prompt("x"))
    assert runs_on(sim, again) == 2, "it goes to the engine that has rested for longer"
    sim.finish(again)
    sim.pass_time(1)
    sim.finish(sim.submit("a", payload=prompt("y")))
    assert runs_on(sim, sim.submit("a", payload=prompt("x", 2))) == 2


def test_what_an_engine_knew_is_forgotten_with_it() -> None:
    sim = replicated()
    key = sim.submit("a", payload=prompt("x"))
    sim.finish(key)
    known = sim.state.models["a"].prefixes
    assert known._known
    sim.engine_dies(worker(sim, 1))
    assert not known._known


def test_a_younger_request_of_the_same_key_never_overtakes_for_a_cache() -> None:
    sim = replicated(slots=1)
    sim.finish(sim.submit("a", payload=prompt("x")))
    running = [sim.submit("a", payload=prompt("u")) for _ in range(2)]
    older = sim.submit("a", payload=prompt("o"))
    younger = sim.submit("a", payload=prompt("x", 2))
    sim.finish(next(key for key in running if runs_on(sim, key) == 1))
    assert [runs_on(sim, older), runs_on(sim, younger)] == [1, 0]
