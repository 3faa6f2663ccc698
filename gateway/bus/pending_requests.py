"""The inference requests and calls of this gateway that still wait for messages, by number.

Invariants:

* One sequence numbers requests and calls, and no number is used again: a message means one of them at most.
* What was removed gets nothing more, however late a message or an event for it arrives.
"""

from __future__ import annotations

import itertools

from gateway.bus.calls import SupervisorCall
from gateway.requests.exchange import RequestExchange
from protocol.failures import Failure


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
        self._fail_exchanges(list(self.exchanges.values()), failure)
        self._fail_calls(list(self.calls.values()), failure)

    def fail_without_worker(self, failure: Failure) -> None:
        """Fail what only the supervisor could go on with: requests that no worker has, and all calls."""
        self._fail_exchanges([each for each in self.exchanges.values() if not each.worker], failure)
        self._fail_calls(list(self.calls.values()), failure)

    def fail_attempts_of(self, worker: str, failure: Failure) -> None:
        """Fail the present attempts of the requests that ``worker`` has; they may be tried again elsewhere."""
        self._fail_exchanges([each for each in self.exchanges.values() if each.worker == worker], failure)

    def fail_endless_calls(self, failure: Failure) -> None:
        """Fail the calls that would never end by themselves."""
        self._fail_calls([each for each in self.calls.values() if each.endless], failure)

    @staticmethod
    def _fail_exchanges(exchanges: list[RequestExchange], failure: Failure) -> None:
        for exchange in exchanges:
            exchange.fail(failure)

    @staticmethod
    def _fail_calls(calls: list[SupervisorCall], failure: Failure) -> None:
        for call in calls:
            call.fail(failure)
