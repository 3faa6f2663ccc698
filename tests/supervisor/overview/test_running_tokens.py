"""The tokens of running attempts, as workers report them."""

from __future__ import annotations

from protocol.ids import RequestKey
from protocol.messages.work import RunningAnswer
from supervisor.overview.running_tokens import RunningTokens, TokensSoFar

KEY = RequestKey("g1", 1, 1)


def answer(tokens: int, age: float, number: int = 1) -> RunningAnswer:
    return RunningAnswer("g1", number, 1, tokens, age)


def test_an_attempt_has_the_tokens_of_the_last_report() -> None:
    tokens = RunningTokens(lambda _: None)
    assert tokens.of("w1", KEY) == TokensSoFar()
    tokens.report("w1", 5, [answer(5, 0.5)], 100.0)
    assert tokens.of("w1", KEY) == TokensSoFar(5, 99.5)
    tokens.report("w1", 9, [answer(9, 1.52)], 101.0)
    assert tokens.of("w1", KEY) == TokensSoFar(9, 99.5), "the moment of the first token does not change"
    assert tokens.of("w2", KEY) == TokensSoFar()
    tokens.report("w1", 9, [], 102.0)
    assert tokens.of("w1", KEY) == TokensSoFar()


def test_new_tokens_are_counted_from_a_workers_first_report_on() -> None:
    produced: list[int] = []
    tokens = RunningTokens(produced.append)
    for total in (1000, 1000, 1040, 1030, 1100):
        tokens.report("w1", total, [], 1.0)
    tokens.report("w2", 7, [], 1.0)
    assert produced == [0, 0, 40, 0, 70, 0]


def test_workers_that_have_ended_are_forgotten() -> None:
    produced: list[int] = []
    tokens = RunningTokens(produced.append)
    for worker in ("w1", "w2"):
        tokens.report(worker, 5, [answer(5, 0.0)], 1.0)
    tokens.keep_only({"w2"})
    assert tokens.of("w1", KEY) == TokensSoFar()
    assert tokens.of("w2", KEY).tokens == 5
    tokens.report("w2", 8, [], 2.0)
    assert produced == [0, 0, 3]
