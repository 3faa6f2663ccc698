"""The response headers about a key's limits, in the forms that OpenAI's and Anthropic's clients read. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from protocol.messages.work import LimitStatus, RateLimits

Headers = dict[str, str]


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
    if limits.requests is not None:
        yield "requests", limits.requests
    if limits.tokens is not None:
        yield "tokens", limits.tokens


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds, 3), 60)
    return (f"{minutes:.0f}m" if minutes else "") + f"{rest:.3f}".rstrip("0").rstrip(".") + "s"
