"""``stats``: tokens and times of the last finished request."""

from __future__ import annotations

import msgspec

from gateway.api.common.operations import MODEL
from gateway.api.common.routes import HttpCaller, route
from protocol.messages.health import GetStats, StatsReport


class StatsQuery(msgspec.Struct):
    """For the last request of one model."""

    model: str | msgspec.UnsetType = msgspec.UNSET


class RequestStats(msgspec.Struct):
    """Tokens and seconds of the last finished request."""

    time_to_first_token: float
    tokens_per_second: float
    input_tokens: int
    """Those in the prompt that were not cached."""
    output_tokens: int
    decode_token_times: list[float]
    prompt_tokens: int
    cached_tokens: int
    cache_tokens: int
    """The same, under the name that Lemonade's app uses."""
    model: str | None
    total_seconds: float


@route("GET", "stats", monitors=True, failures=MODEL)
def show_stats(caller: HttpCaller, query: StatsQuery) -> RequestStats:
    """Shows tokens and times of the last finished request."""
    model = query.model or ""
    return request_stats(caller.ask(lambda number: GetStats(number, model, caller.context.models), StatsReport))


def request_stats(stats: StatsReport) -> RequestStats:
    """Return the tokens and times as the documents call them."""
    outcome = stats.outcome
    return RequestStats(
        time_to_first_token=outcome.first_token_s,
        tokens_per_second=outcome.tokens_per_second,
        input_tokens=max(0, outcome.prompt_tokens - outcome.cached_tokens),
        output_tokens=outcome.output_tokens,
        decode_token_times=outcome.each_token_s,
        prompt_tokens=outcome.prompt_tokens,
        cached_tokens=outcome.cached_tokens,
        cache_tokens=outcome.cached_tokens,
        model=stats.model or None,
        total_seconds=outcome.total_s,
    )
