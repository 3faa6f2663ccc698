"""How many tokens the running attempts have produced, as their workers report each second. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from protocol.ids import RequestKey
from protocol.messages.work import RunningAnswer


class TokensSoFar(NamedTuple):
    """The tokens of a running attempt, and when the first one came, by the loop's clock; 0: none has come."""

    tokens: int = 0
    first_at: float = 0.0


class RunningTokens:
    """The last report of each worker."""

    def __init__(self, produced: Callable[[int], None]) -> None:
        """Know no worker yet. ``produced`` gets the number of new tokens."""
        self._produced = produced
        self._running: dict[str, dict[RequestKey, TokensSoFar]] = {}
        self._totals: dict[str, int] = {}

    def report(self, worker: str, total: int, running: Sequence[RunningAnswer], now: float) -> None:
        """Take a worker's report. The total of its first one does not count: an earlier supervisor may have counted it."""
        before = self._running.get(worker, {})
        self._running[worker] = {
            each.key: TokensSoFar(each.tokens, _first_at(before.get(each.key), each, now)) for each in running
        }
        self._produced(max(0, total - self._totals.get(worker, total)))
        self._totals[worker] = total

    def of(self, worker: str, key: RequestKey) -> TokensSoFar:
        """Return what an attempt has produced."""
        return self._running.get(worker, {}).get(key, TokensSoFar())

    def keep_only(self, workers: Collection[str]) -> None:
        """Forget the workers that have ended: these are all that have not."""
        for worker in self._totals.keys() - workers:
            del self._running[worker], self._totals[worker]


def _first_at(before: TokensSoFar | None, answer: RunningAnswer, now: float) -> float:
    """Return when the first token came. It does not change from report to report."""
    if before is not None and before.first_at:
        return before.first_at
    return now - answer.age if answer.tokens else 0.0
