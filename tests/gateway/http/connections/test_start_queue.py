"""Few connections begin in one iteration of the event loop, in their order."""

from __future__ import annotations

import gevent

from gateway.http.connections.start_queue import STARTS_PER_ITERATION, StartQueue


def test_others_run_between_those_that_begin() -> None:
    queue = StartQueue()
    seen: list[int] = []

    def begin(number: int) -> None:
        assert queue.wait(lambda: False)
        seen.append(number)

    waiting = [gevent.spawn(begin, number) for number in range(3 * STARTS_PER_ITERATION)]
    killed = waiting.pop()
    gevent.sleep(0)
    assert len(seen) <= STARTS_PER_ITERATION
    killed.kill()
    gevent.joinall(waiting, timeout=5, raise_error=True)
    assert seen == list(range(3 * STARTS_PER_ITERATION - 1))


def test_clients_that_have_left_take_no_turn_of_others() -> None:
    queue = StartQueue()
    began: list[int] = []
    left: list[int] = []
    last = 5 * STARTS_PER_ITERATION

    def begin(number: int) -> None:
        has_left = STARTS_PER_ITERATION <= number < last
        (began if queue.wait(lambda: has_left) else left).append(number)

    waiting = [gevent.spawn(begin, number) for number in range(last + 1)]
    gevent.joinall(waiting, timeout=5, raise_error=True)
    assert began == [*range(STARTS_PER_ITERATION), last]
    assert left == [*range(STARTS_PER_ITERATION, last)]
