"""This gateway's inference requests and calls that still wait for messages, by number.

Invariants:

* One sequence numbers requests and calls, and no number is used again: a message is about at most one of them.
* After its removal, a request or call gets nothing more, however late a message or an event for it arrives.
* If one of them raises while it fails, that is logged and counted, and the others still get their failures.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final, NamedTuple

from gateway.bus.calls import SupervisorCall
from gateway.internal_errors import INTERNAL_ERRORS
from gateway.requests.exchange import RequestExchange
from protocol.failures import Failure
from protocol.models.nodes import NODE_SILENCE_S

CUT_OFF_TIMEOUT_S: Final = NODE_SILENCE_S + 1.0
"""How long after the end of its connection the supervisor must have said of a worker that it is gone, if it is."""
CUT_OFF_ELSEWHERE_S: Final = 1.0
"""The same for the client of a gateway on another node that has a part of its answer, if the worker was silent for some seconds.

That gateway alone may be cut off from the worker. It notices this after up to 4 s, and its client is told within 5 s.
"""


class OpenAttempt(NamedTuple):
    """One attempt of a request."""

    exchange: RequestExchange
    attempt: int


class PendingRequests:
    """Used in the hub and by greenlets; no method lets another greenlet run."""

    def __init__(self) -> None:
        """Start with none."""
        self.exchanges: dict[int, RequestExchange] = {}
        self.calls: dict[int, SupervisorCall] = {}
        self._numbers = itertools.count(1)

    def next_number(self) -> int:
        """Return the number of a new request or call."""
        return next(self._numbers)

    def find(self, number: int) -> RequestExchange | SupervisorCall | None:
        """Return the request or the call of this number, if it still waits."""
        return self.exchanges.get(number) or self.calls.get(number)

    def fail_all(self, failure: Failure) -> None:
        """Fail every request and every call."""
        self._fail_each([*self.exchanges.values(), *self.calls.values()], failure)

    def fail_without_worker(self, failure: Failure) -> None:
        """Fail what only the supervisor could continue: requests that no worker has, and all calls."""
        without_worker = [each for each in self.exchanges.values() if not each.worker]
        self._fail_each([*without_worker, *self.calls.values()], failure)

    def fail_waiting(self, failure: Failure) -> None:
        """Fail what waits for a supervisor: requests that no worker has, and unanswered calls."""
        without_worker = [each for each in self.exchanges.values() if not each.worker]
        unanswered = [each for each in self.calls.values() if not each.answered]
        self._fail_each([*without_worker, *unanswered], failure)

    def process_replaced(self) -> None:
        """Answer the calls that end because the new supervisor speaks another version of the protocol."""
        for call in [each for each in self.calls.values() if not each.answered]:
            call.process_replaced()

    def fail_attempts_of(self, worker: str, failure: Failure) -> None:
        """Fail the present attempts of the requests that ``worker`` has; they may be tried again elsewhere."""
        self._fail_each([each for each in self.exchanges.values() if each.worker == worker], failure)

    def fail_with_worker(self, failure: Failure) -> None:
        """Fail the present attempts of the requests that any worker has; they may be tried again."""
        self._fail_each([each for each in self.exchanges.values() if each.worker], failure)

    def attempts_of(self, worker: str) -> list[OpenAttempt]:
        """Return the present attempts of the requests that ``worker`` has."""
        return [OpenAttempt(each, each.attempt) for each in self.exchanges.values() if each.worker == worker]

    def fail_attempts(self, attempts: Iterable[OpenAttempt], failure: Failure, *, begun: bool = False) -> None:
        """Fail those of these attempts that have not ended; ``begun``: only if the client has a part of the answer."""
        waiting = set(self.exchanges.values())
        open_ones = [each for each, attempt in attempts if each in waiting and each.attempt == attempt]
        self._fail_each([each for each in open_ones if each.inbox.taken or not begun], failure)

    def fail_endless_calls(self, failure: Failure) -> None:
        """Fail the calls that would never end by themselves."""
        self._fail_each([each for each in self.calls.values() if each.endless], failure)

    def fail_one(self, waiting: RequestExchange | SupervisorCall, failure: Failure) -> None:
        """Fail one request or call. An exception on the way is logged and counted. Raises nothing."""
        try:
            waiting.fail(failure)
        except Exception as problem:  # noqa: BLE001 - others also wait for their failure
            INTERNAL_ERRORS.log(problem, request_id=waiting.label)

    def end_withdrawn(self) -> None:
        """End each request and call that may not go on."""
        running: list[RequestExchange | SupervisorCall] = [*self.exchanges.values(), *self.calls.values()]
        for each in running:
            try:
                each.withdraw()
            except Exception as problem:  # noqa: BLE001 - the others must also end
                INTERNAL_ERRORS.log(problem, request_id=each.label)

    def _fail_each(self, waiting: Iterable[RequestExchange | SupervisorCall], failure: Failure) -> None:
        for each in waiting:
            self.fail_one(each, failure)
