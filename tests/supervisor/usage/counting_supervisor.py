"""A supervisor that counts for tests, and what it counts."""

from __future__ import annotations

import os
from array import array
from typing import Any, Final

import msgspec

from protocol.messages.caller import Caller
from protocol.messages.events import Outcome
from protocol.messages.work import AttemptEnded
from protocol.runtime.loop import Loop
from supervisor.limits.rate_limiter import RateLimiter
from supervisor.limits.token_budgets import TokenBudgets
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.persistence.memfd_journal import MemfdJournal
from supervisor.usage.accounting import Accounting
from supervisor.usage.journal import RECORDS, Record

NOON: Final = 1_936_958_400.0
DAY: Final = "2031-05-19"
CALLER: Final = Caller("ci", requests_per_minute=60, tokens_per_minute=1000, tokens_per_day=5000)
OUTCOME: Final = Outcome(10, 4, 3, 0.1, 0.2, 0.5, array("f", [0.1] * 3).tobytes(), "m")


class FixedCounters:
    """Counters of the supervisor that it keeps elsewhere."""

    def __init__(self) -> None:
        self.former: dict[str, int] = {}

    def totals(self) -> dict[str, int]:
        return {"malformed": 2 + self.former.get("malformed", 0)}


class CountingSupervisor:
    """The parts of a supervisor that count, over a journal that the next one gets."""

    def __init__(self, held: MemfdJournal[Record] | None = None) -> None:
        self.loop = Loop(lambda: 7.0)
        self.held = MemfdJournal("held", RECORDS) if held is None else held
        self.metrics, self.limits, self.budgets = ServerMetrics(), RateLimiter(), TokenBudgets()
        self.counters: Any = FixedCounters()
        self.accounting = Accounting(
            loop=self.loop,
            metrics=self.metrics,
            counters=self.counters,
            limits=self.limits,
            budgets=self.budgets,
            registered=lambda name: {"m": "m", "alias": "m"}.get(name, ""),
            clock=lambda: NOON,
        )
        self.accounting.use_journal(-1 if held is None else os.dup(held.descriptor), self._hold)

    def _hold(self, descriptor: int) -> None:
        """Keep it as the keeper does: as a descriptor of its own."""
        self.held = MemfdJournal("held", RECORDS, os.dup(descriptor))

    def killed(self) -> CountingSupervisor:
        """Return the next supervisor."""
        self.loop.close()
        return CountingSupervisor(self.held)

    def counted(self) -> dict[str, Any]:
        return {
            "usage": self.accounting.unwritten,
            "metrics": self.metrics.state(),
            "limits": self.limits.state(),
            "budgets": msgspec.to_builtins(self.budgets.state()),
        }


def end(serial: int, **fields: Any) -> AttemptEnded:
    return msgspec.structs.replace(AttemptEnded("g", serial, 1, serial=serial, model="m", api_key="ci"), **fields)
