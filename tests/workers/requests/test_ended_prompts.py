"""The tokens of its prompt that an attempt has cost when it ends without an answer."""

from __future__ import annotations

import pytest

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.work import AttemptEnded
from tests.workers.requests.attempt_harness import Worker, begin_answer
from workers.backends.engine_request import EngineRequest

PROMPT = b'{"prompt":"' + b"word " * 40 + b'","max_tokens":4}'


ESTIMATE = 51
"""A quarter of the 202 bytes of its JSON text."""


PROGRESS = b'data: {"choices":[{"index":0,"text":""}],"prompt_progress":{"total":77,"cache":0,"processed":8}}\n\n'


def prompts_of_ends(worker: Worker) -> list[tuple[str, int]]:
    worker.loop.run_once(0.0)
    worker.bus.flush()
    return [(each.code, each.prompt_tokens) for each in worker.bus.sent if isinstance(each, AttemptEnded)]


@pytest.mark.parametrize(
    ("sent", "endpoint", "weight", "tokens"),
    [
        ([], "completions", 1, ESTIMATE),
        ([PROGRESS], "completions", 1, 77),
        ([PROGRESS], "completions", 2, ESTIMATE),
        ([], "tokenize", 0, 0),
        ([], "images/generations", 1, 0),
    ],
    ids=["not told", "told", "of two prompts only one is told", "a read", "no tokens are counted"],
)
def test_the_end_of_a_cancelled_attempt_has_the_tokens_of_its_prompt(
    worker: Worker, sent: list[bytes], endpoint: str, weight: int, tokens: int
) -> None:
    worker.answers(EngineRequest("POST", "/", PROMPT, streamed=True, prompts=weight))
    worker.run(1, endpoint=endpoint)
    (attempt,) = worker.pool.attempts
    attempt.began(200)
    for piece in sent:
        attempt.data(piece)
    worker.requests.cancel(RequestKey("g", 1, 1), Code.CANCELLED)
    attempt.ended()
    assert prompts_of_ends(worker) == [(Code.CANCELLED, tokens)]


def test_a_prompt_that_the_engine_has_not_got_or_has_refused_costs_nothing(worker: Worker) -> None:
    worker.answers(EngineRequest("POST", "/", PROMPT, streamed=True))
    worker.run(1, gateway="late")
    worker.requests.cancel(RequestKey("late", 1, 1), Code.CANCELLED)
    worker.run(2)
    worker.pool.attempts[0].began(400)
    worker.pool.attempts[0].ended()
    assert prompts_of_ends(worker) == [(Code.CANCELLED, 0), (Code.INVALID_REQUEST, 0)]


def test_after_an_engines_death_the_prompts_count_of_requests_that_are_not_tried_again(worker: Worker) -> None:
    worker.answers(EngineRequest("POST", "/", PROMPT, streamed=True))
    for number in range(1, 5):
        worker.run(number)
    _, answered, _, cause = worker.pool.attempts
    begin_answer(answered)
    worker.requests.cancel(RequestKey("g", 3, 1), Code.CANCELLED)
    lost = worker.requests.fail_all(Failure(Code.BACKEND_DIED, "the engine died"), [cause.key])
    assert [(each.number, each.tokens, each.prompt_tokens) for each in lost] == [
        (1, 0, 0),
        (2, 1, ESTIMATE),
        (3, 0, ESTIMATE),
        (4, 0, ESTIMATE),
    ]
