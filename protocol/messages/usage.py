"""Usage: what was counted of each API key, model and day, and the call that returns it."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from protocol.failures import Code, Failure
from protocol.messages.calls import repeated_call
from protocol.times import Seconds


def _with_status(*statuses: int) -> frozenset[str]:
    return frozenset(code.value for code in Code if Failure(code, "").http_status in statuses)


_CANCELLED: Final = _with_status(499)
_REFUSED: Final = _with_status(401, 403, 429, 503)


class UsageRow(msgspec.Struct, frozen=True, array_like=True):
    """What one API key has used of one model on one day.

    ``requests``: those that have ended, in whatever way. Prompt tokens include cached ones.
    """

    day: str
    """In UTC: ``2031-05-01``."""
    api_key: str
    """Its name, empty without keys."""
    model: str
    """The registered name; empty for requests that failed before their model was known."""
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    engine_seconds: Seconds = 0.0
    failures: dict[str, int] = {}
    """Failure code → requests that ended with it, streams that broke off included."""

    @property
    def names(self) -> tuple[str, str, str]:
        """What it is about."""
        return self.day, self.api_key, self.model

    @property
    def tokens(self) -> int:
        """Those of prompts and answers."""
        return self.prompt_tokens + self.output_tokens

    def plus(self, other: UsageRow) -> UsageRow:
        """Return the sum of two rows, under this one's names."""
        failures = self.failures
        if other.failures:
            failures = dict(Counter(failures) + Counter(other.failures))
        return UsageRow(
            self.day,
            self.api_key,
            self.model,
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.output_tokens + other.output_tokens,
            self.engine_seconds + other.engine_seconds,
            failures,
        )

    @property
    def refusals(self) -> int:
        """Requests answered 401, 403, 429 or 503."""
        return sum(count for code, count in self.failures.items() if code in _REFUSED)

    @property
    def cancelled(self) -> int:
        """Requests whose clients left."""
        return sum(count for code, count in self.failures.items() if code in _CANCELLED)

    @property
    def errors(self) -> int:
        """All other requests that failed."""
        return sum(self.failures.values()) - self.refusals - self.cancelled


def total(rows: Iterable[UsageRow]) -> UsageRow:
    """Return the sum of all rows, without names."""
    return functools.reduce(UsageRow.plus, rows, UsageRow("", "", ""))


class UsageFilter(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which rows are wanted; an empty field matches all."""

    first_day: str = ""
    last_day: str = ""
    api_key: str | None = None
    """None: of all keys; empty: of requests without a key."""
    model: str = ""
    models: list[str] = []
    """Patterns of the models that the caller's key may use, if not all."""
    by_day: bool = True
    """False: one row for each key and model, whose day is empty."""


@repeated_call
class GetUsage(msgspec.Struct, frozen=True):
    """→ :class:`UsageReport`."""

    number: int
    filter: UsageFilter


class UsageReport(msgspec.Struct, frozen=True):
    """The rows of a filter, by day, key and model."""

    rows: list[UsageRow]
    problem: str = ""
    """Why usage cannot be written or read now; the rows are then only those in memory. Empty: nothing."""
