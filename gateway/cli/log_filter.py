"""Which lines of the log a command shows: since when, until when, and what they contain. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from typing import Any, Final, NamedTuple

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGO: Final = re.compile(r"-?((?:\d{1,9}(?:\.\d{1,3})?[smhdw])+)(?: ago)?")
_PART: Final = re.compile(r"([\d.]+)([smhdw])")
_CLOCK: Final = re.compile(r"\d\d:")
_DAYS: Final = {"today": 0, "yesterday": 1}


def parse_moment(text: str, now: datetime) -> datetime:
    """Return the moment that a person means; raises ValueError.

    That is a time before ``now`` (``10m``, ``1h30m``), a time of today (``10:00``), ``today``, ``yesterday``, ``now``, or a date
    with or without a time. Without an offset, it is in this machine's zone, as ``now`` is.
    """
    if text == "now":
        return now
    try:
        if ago := _AGO.fullmatch(text):
            parts = (timedelta(**{_UNITS[unit]: float(count)}) for count, unit in _PART.findall(ago[1]))
            return now - sum(parts, timedelta())
        moment = _written(text, now)
        return moment if moment.tzinfo else moment.astimezone()
    except (OverflowError, OSError) as problem:
        raise ValueError(text) from problem


def _written(text: str, now: datetime) -> datetime:
    if text in _DAYS:
        return datetime.combine(now.date() - timedelta(days=_DAYS[text]), time())
    if _CLOCK.match(text):
        return datetime.combine(now.date(), time.fromisoformat(text))
    return datetime.fromisoformat(text)


class LogFilter(NamedTuple):
    """What a line must be. The server does not compare these: a pattern must not cost it time."""

    since: datetime | None = None
    until: datetime | None = None
    pattern: re.Pattern[str] | None = None

    def matches(self, entry: dict[str, Any]) -> bool:
        """Return whether to show an entry. One without a time is not left out because of its time."""
        moment = moment_of(entry.get("timestamp"))
        if moment is not None and (
            (self.since is not None and moment < self.since) or (self.until is not None and moment > self.until)
        ):
            return False
        return self.pattern is None or self.pattern.search(str(entry.get("line"))) is not None


def moment_of(stamp: object) -> datetime | None:
    """Return the moment that a time in the log means, None if it is not one."""
    try:
        return datetime.fromisoformat(str(stamp)).replace(tzinfo=UTC)
    except ValueError:
        return None


def compile_pattern(text: str) -> re.Pattern[str]:
    """Return the pattern; raises ``re.error``. One without capital letters also matches capital ones."""
    return re.compile(text, re.IGNORECASE if text == text.lower() else 0)
