"""What each API key has used of its tokens of a day and of a month. Pure: times are arguments, in Unix seconds.

Days and months are those of UTC. Like the limits of a minute, a budget counts tokens once they are known, and reserves
what running requests may use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from protocol.failures import Code, Failure
from protocol.messages.caller import Caller, LimitStatus
from protocol.times import day_of
from supervisor.limits.rate_limiter import RUNNING_RETRY_S, refusal_of


class SpentTokens(msgspec.Struct, array_like=True):
    """The tokens of one key, on the day and in the month when it was used last."""

    day: str = ""
    of_day: int = 0
    of_month: int = 0

    def turn(self, day: str) -> None:
        """Begin again with a new day, and with a new month."""
        if day != self.day:
            if day[:7] != self.day[:7]:
                self.of_month = 0
            self.day, self.of_day = day, 0


class _Budget(msgspec.Struct, frozen=True, array_like=True):
    period: str
    limit: int
    spent: int
    reset: float
    """Seconds until the period ends."""


class TokenBudgets:
    """The tokens of all keys, by their names."""

    def __init__(self) -> None:
        """Nothing was used."""
        self._spent: dict[str, SpentTokens] = {}

    def spend(self, key: str, tokens: int, now: float) -> None:
        """Count tokens, whether the key has a budget now or not."""
        if key and tokens:
            spent = self._spent_by(key, now)
            spent.of_day += tokens
            spent.of_month += tokens

    def add_stored(self, stored: Iterable[tuple[str, int, int]], now: float) -> None:
        """Add what earlier servers have counted: each key, its tokens of today and of this month."""
        for key, of_day, of_month in stored:
            spent = self._spent_by(key, now)
            spent.of_day += of_day
            spent.of_month += of_month

    def refusal(self, caller: Caller, now: float, reserved: int = 0) -> Failure | None:
        """Return why a key may not send another request now. ``reserved``: the tokens that its running ones may use."""
        budgets = self._budgets(caller, now)
        for period, limit, spent, reset in sorted(map(msgspec.structs.astuple, budgets), key=lambda each: -each[3]):
            if spent >= limit:
                return refusal_of(caller, f"{limit} tokens a {period}, in UTC", reset, Code.QUOTA)
        for period, limit, spent, _ in map(msgspec.structs.astuple, budgets):
            if spent + reserved >= limit:
                what = f"{limit} tokens a {period}, and its running requests may use what is left"
                return refusal_of(caller, what, RUNNING_RETRY_S)
        return None

    def statuses(self, caller: Caller, now: float) -> tuple[LimitStatus | None, LimitStatus | None]:
        """Return the budgets of the day and of the month; None for one that the key does not have."""
        found = {
            each.period: LimitStatus(each.limit, max(0, each.limit - each.spent), each.reset)
            for each in self._budgets(caller, now)
        }
        return found.get("day"), found.get("month")

    def state(self) -> dict[str, SpentTokens]:
        """Return all of it, for the next supervisor."""
        return self._spent

    def restore(self, state: Mapping[str, SpentTokens]) -> None:
        """Go on from what an earlier supervisor knew."""
        self._spent = dict(state)

    def _spent_by(self, key: str, now: float) -> SpentTokens:
        spent = self._spent.setdefault(key, SpentTokens())
        spent.turn(day_of(now))
        return spent

    def _budgets(self, caller: Caller, now: float) -> list[_Budget]:
        if not caller.has_budget:
            return []
        spent, moment = self._spent_by(caller.key, now), datetime.fromtimestamp(now, UTC)
        midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        tomorrow = midnight + timedelta(days=1)
        next_month = (midnight.replace(day=1) + timedelta(days=32)).replace(day=1)
        budgets = [
            _Budget("day", caller.tokens_per_day, spent.of_day, (tomorrow - moment).total_seconds()),
            _Budget("month", caller.tokens_per_month, spent.of_month, (next_month - moment).total_seconds()),
        ]
        return [each for each in budgets if each.limit]
