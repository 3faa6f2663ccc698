"""When an attempt is repeated and when the client is told."""

from __future__ import annotations

import pytest

from gateway.attempts import MOST_RETURNS, Retry, Tell, after
from protocol.failures import RETRIABLE, Code


@pytest.mark.parametrize("code", list(Code))
def test_nothing_is_repeated_that_was_partly_written(code: Code) -> None:
    assert after(code, written=True, attempt=1) == Tell()


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.RETURNED])
def test_nothing_is_repeated_twice(code: Code) -> None:
    assert after(code, written=False, attempt=2) == Tell()


@pytest.mark.parametrize("code", sorted(RETRIABLE - {Code.RETURNED}))
def test_attempts_that_no_worker_took_up_do_not_count(code: Code) -> None:
    assert isinstance(after(code, written=False, attempt=3, returns=2), Retry)
    assert after(code, written=False, attempt=4, returns=2) == Tell()


def test_a_request_is_not_returned_for_ever() -> None:
    assert after(Code.RETURNED, written=False, attempt=MOST_RETURNS, returns=MOST_RETURNS - 1) == Retry(suspect=False)
    assert after(Code.RETURNED, written=False, attempt=MOST_RETURNS + 1, returns=MOST_RETURNS) == Tell()


@pytest.mark.parametrize("code", list(Code))
def test_only_accidents_are_repeated(code: Code) -> None:
    assert isinstance(after(code, written=False, attempt=1), Retry) == (code in RETRIABLE)


@pytest.mark.parametrize(
    ("code", "suspect"),
    [
        (Code.BACKEND_DIED, True),
        (Code.HUNG, True),
        (Code.WORKER_GONE, True),
        (Code.RETURNED, False),
        (Code.LOST, False),
    ],
)
def test_a_request_that_was_in_the_engine_is_suspect(code: Code, suspect: bool) -> None:
    assert after(code, written=False, attempt=1) == Retry(suspect)
