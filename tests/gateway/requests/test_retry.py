"""When an attempt is repeated, and when the client gets its failure."""

from __future__ import annotations

import pytest

from gateway.requests.retry import MAX_RETURNS, GiveUp, Retry, decide_retry
from protocol.failures import RETRIABLE, Code, Failure


@pytest.mark.parametrize("code", list(Code))
def test_nothing_is_repeated_that_was_partly_written(code: Code) -> None:
    assert decide_retry(Failure(code, "no"), written=True, attempt=1) == GiveUp()


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.RETURNED])
def test_nothing_is_repeated_twice(code: Code) -> None:
    assert decide_retry(Failure(code, "no"), written=False, attempt=2) == GiveUp()


@pytest.mark.parametrize("code", sorted(RETRIABLE - {Code.RETURNED}))
def test_attempts_that_no_worker_took_up_do_not_count(code: Code) -> None:
    assert isinstance(decide_retry(Failure(code, "no"), written=False, attempt=3, returns=2), Retry)
    assert decide_retry(Failure(code, "no"), written=False, attempt=4, returns=2) == GiveUp()


def test_a_request_is_not_returned_for_ever() -> None:
    assert decide_retry(
        Failure(Code.RETURNED, "no"), written=False, attempt=MAX_RETURNS, returns=MAX_RETURNS - 1
    ) == Retry(suspect=False)
    assert (
        decide_retry(Failure(Code.RETURNED, "no"), written=False, attempt=MAX_RETURNS + 1, returns=MAX_RETURNS)
        == GiveUp()
    )


@pytest.mark.parametrize("code", list(Code))
def test_only_accidents_are_repeated(code: Code) -> None:
    assert isinstance(decide_retry(Failure(code, "no"), written=False, attempt=1), Retry) == (code in RETRIABLE)


@pytest.mark.parametrize(
    ("code", "suspect"),
    [
        (Code.BACKEND_DIED, True),
        (Code.HUNG, True),
        (Code.CONNECTION_LOST, True),
        (Code.OUT_OF_MEMORY, True),
        (Code.WORKER_GONE, True),
        (Code.RETURNED, False),
        (Code.NODE_LOST, False),
        (Code.LOST, False),
    ],
)
def test_a_request_that_was_in_the_engine_is_suspect(code: Code, suspect: bool) -> None:
    assert decide_retry(Failure(code, "no"), written=False, attempt=1) == Retry(suspect)


@pytest.mark.parametrize("code", list(Code))
def test_a_request_that_an_engine_died_of_is_not_repeated(code: Code) -> None:
    assert decide_retry(Failure(code, "no", by_request=True), written=False, attempt=1) == GiveUp()
