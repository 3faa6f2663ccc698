"""Few connections begin in one iteration of the event loop, in their order."""

from __future__ import annotations

import gevent

from gateway.http.connections.start_queue import STARTS_PER_ITERATION, StartQueue


def test_others_run_between_those_that_begin() -> None:
    queue = StartQueue()
    seen: list[int] = []

    def begin(number: int) -> None:
        queue.wait()
        seen.append(number)

    waiting = [gevent.spawn(begin, number) for number in range(3 * STARTS_PER_ITERATION)]
    killed = waiting.pop()
    gevent.sleep(0)
    assert len(seen) <= STARTS_PER_ITERATION
    killed.kill()
    gevent.joinall(waiting, timeout=5, raise_error=True)
    assert seen == list(range(3 * STARTS_PER_ITERATION - 1))
