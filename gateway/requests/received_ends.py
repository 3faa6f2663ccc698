"""The ends of the latest answers, by their workers: one that dies may not have reported them to the supervisor."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from gateway.requests.exchange import RequestExchange
from protocol.messages.events import Outcome
from protocol.messages.work import AttemptEnded

MAX_ENDS: Final = 256
"""More than a worker can end before it sends their reports, which takes milliseconds."""


class _End(NamedTuple):
    worker: str
    gateway: str
    number: int
    attempt: int
    outcome: Outcome
    api_key: str
    more: bool


class ReceivedEnds:
    """The latest ends. Used in the hub only."""

    def __init__(self) -> None:
        """No answer has ended."""
        self._latest: deque[_End] = deque(maxlen=MAX_ENDS)

    def add(self, gateway: str, exchange: RequestExchange, worker: str, outcome: Outcome) -> None:
        """Keep the end of an answer. Reads have no serial number, because they cost nothing."""
        if outcome.serial:
            key = exchange.caller.key if exchange.caller is not None else ""
            more = exchange.request.more
            self._latest.append(_End(worker, gateway, exchange.number, exchange.attempt, outcome, key, more))

    @property
    def workers(self) -> set[str]:
        """All of their workers."""
        return {each.worker for each in self._latest}

    def of(self, worker: str) -> list[AttemptEnded]:
        """Return the reports of a worker, as it would have sent them."""
        return [
            AttemptEnded(
                each.gateway,
                each.number,
                each.attempt,
                outcome=each.outcome,
                serial=each.outcome.serial,
                model=each.outcome.model,
                api_key=each.api_key,
                more=each.more,
            )
            for each in self._latest
            if each.worker == worker
        ]
