"""``GET /internal/usage``: who has used what, by API key, model and day."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date
from typing import Any, Final

import msgspec

from gateway.api.common.routes import HttpCaller, route
from gateway.server_clock import SERVER_CLOCK
from protocol.failures import Code, Failure, invalid
from protocol.messages.usage import GetUsage, UsageFilter, UsageReport, UsageRow, total
from protocol.times import Seconds

_MONTH: Final = re.compile(r"\d{4}-\d{2}\Z")


class UsageQuery(msgspec.Struct):
    """Which usage is wanted: by default, everything of the present month."""

    key: str | None = None
    """The name of an API key; empty: requests without a key."""
    model: str | None = None
    """The registered name of a model."""
    since: str | None = None
    """The first day, in UTC: ``2031-05-01``."""
    month: str | None = None
    """A whole month: ``2031-05``."""
    by_day: bool | None = None
    """False: one row for each key and model, with the sums of all days. Its ``day`` is empty."""


class UsageFigures(msgspec.Struct, kw_only=True):
    """What was used."""

    requests: int
    """Those that have ended, in whatever way."""
    errors: int
    """Those that failed, streams that broke off included; neither refused nor cancelled."""
    refusals: int
    """Those answered 401, 403, 429 or 503."""
    cancelled: int
    """Those whose clients left before the end of the answer."""
    prompt_tokens: int
    """Cached ones included."""
    cached_tokens: int
    output_tokens: int
    engine_seconds: Seconds
    failures: dict[str, int]
    """Failure code → requests; the sum of errors, refusals and cancelled requests."""


class UsageOfDay(UsageFigures, kw_only=True):
    """What one key has used of one model, on one day or on all."""

    day: str
    """Empty: on all days."""
    key: str
    """Empty: without a key."""
    model: str
    """Empty: unknown, because the request failed before."""


class UsageAnswer(msgspec.Struct):
    """The usage, by day, key and model."""

    first_day: str
    last_day: str
    rows: list[UsageOfDay]
    total: UsageFigures
    problem: str = ""
    """Why usage cannot be written to the disk, or read from it, now; empty: nothing."""


@route("GET", "/internal/usage", secret=True)
def show_usage(caller: HttpCaller, request: UsageQuery) -> UsageAnswer:
    """Says who has used what: tokens, engine time, requests and failures by API key, model and day.

    An administrator sees all; any other key sees its own usage.
    """
    first, last = days_of(request, SERVER_CLOCK.date().date())
    context, key = caller.context, request.key
    if not context.is_admin:
        own = context.api_key.name if context.api_key is not None else ""
        if key not in (None, own):
            raise Failure(Code.FORBIDDEN, "only an administrator may see the usage of another key").raised()
        key = own
    # If no month was given, the last day stays open: the supervisor's date may already be one day later than ours.
    wanted = UsageFilter(
        first, last if request.month else "", key, request.model or "", by_day=request.by_day is not False
    )
    report = caller.ask(lambda number: GetUsage(number, wanted), UsageReport)
    rows = [UsageOfDay(day=row.day, key=row.api_key, model=row.model, **_figures(row)) for row in report.rows]
    problem = report.problem if context.is_admin else ""
    return UsageAnswer(first, last, rows, UsageFigures(**_figures(total(report.rows))), problem)


def days_of(request: UsageQuery, today: date) -> tuple[str, str]:
    """Return the first and the last day that are wanted; raises ``invalid_request``."""
    if request.month:
        if request.since:
            raise invalid("give either since or month", "month")
        if not _MONTH.match(request.month):
            raise invalid("a month looks like 2031-05", "month")
        first = _day(f"{request.month}-01", "month", "a month looks like 2031-05")
        return str(first), str(first.replace(day=monthrange(first.year, first.month)[1]))
    first = _day(request.since, "since", "a day looks like 2031-05-01") if request.since else today.replace(day=1)
    return str(first), str(max(first, today))


def _day(text: str, field: str, form: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise invalid(form, field) from None


def _figures(row: UsageRow) -> dict[str, Any]:
    return {
        "requests": row.requests,
        "errors": row.errors,
        "refusals": row.refusals,
        "cancelled": row.cancelled,
        "prompt_tokens": row.prompt_tokens,
        "cached_tokens": row.cached_tokens,
        "output_tokens": row.output_tokens,
        "engine_seconds": round(row.engine_seconds, 3),
        "failures": row.failures,
    }
