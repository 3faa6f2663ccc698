"""The response headers about a key's limits, in the forms that OpenAI's and Anthropic's clients read. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from protocol.messages.caller import LimitStatus, RateLimits

Headers = dict[str, str]
LIMITED: Final = ("requests", "tokens", "tokens-day", "tokens-month")
"""What the headers are about; the first two of a minute."""


def openai_limit_headers(limits: RateLimits, _now: datetime) -> Headers:
    """Return ``x-ratelimit-limit-requests`` and so on; a reset is a duration such as ``1m30s``."""
    headers = {}
    for what, status in _known(limits):
        headers[f"x-ratelimit-limit-{what}"] = str(status.limit)
        headers[f"x-ratelimit-remaining-{what}"] = str(status.remaining)
        headers[f"x-ratelimit-reset-{what}"] = _duration(status.reset)
    return headers


def anthropic_limit_headers(limits: RateLimits, now: datetime) -> Headers:
    """Return ``anthropic-ratelimit-requests-limit`` and so on; a reset is an RFC 3339 time."""
    headers = {}
    for what, status in _known(limits):
        headers[f"anthropic-ratelimit-{what}-limit"] = str(status.limit)
        headers[f"anthropic-ratelimit-{what}-remaining"] = str(status.remaining)
        reset = (now + timedelta(seconds=status.reset)).astimezone(UTC)
        headers[f"anthropic-ratelimit-{what}-reset"] = reset.strftime("%Y-%m-%dT%H:%M:%SZ")
    return headers


def _known(limits: RateLimits) -> Iterator[tuple[str, LimitStatus]]:
    statuses = (limits.requests, limits.tokens, limits.tokens_of_day, limits.tokens_of_month)
    yield from ((what, status) for what, status in zip(LIMITED, statuses, strict=True) if status is not None)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds, 3), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        (f"{hours:.0f}h" if hours else "")
        + (f"{minutes:.0f}m" if hours or minutes else "")
        + f"{rest:.3f}".rstrip("0").rstrip(".")
        + "s"
    )
