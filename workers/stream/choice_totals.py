"""What an engine reports of all choices of one answer together. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from workers.stream.sse_filter import ChoiceSummary
from workers.stream.token_timing import EngineSpan


class ChoiceTotals(NamedTuple):
    """Tokens, and the engine's own times if it reports any."""

    prompt: int
    cached: int
    output: int
    span: EngineSpan | None
    reported: bool
    """Whether the engine has counted tokens at all."""


def totals_of(summaries: Sequence[ChoiceSummary], choices: int, *, in_turn: bool) -> ChoiceTotals:
    """Add up the summaries of ``choices`` choices. ``in_turn``: they were computed one after the other."""
    prompt = cached = output = 0
    span: EngineSpan | None = None
    for usage, timings in ((each.usage, each.timings) for each in summaries):
        if usage is not None:
            prompt += usage.prompt_tokens
            output += usage.completion_tokens
        if timings is not None:
            cached += timings.cache_n
            own = EngineSpan(timings.prompt_ms / 1000, timings.predicted_ms / 1000)
            if span is not None:
                own = span.followed_by(own) if in_turn else span.merged_with(own)
            span = own
        elif usage is not None:
            cached += usage.cached_tokens
    # Each choice reports its whole prompt, but a prompt is computed once, however many choices it has.
    shared = max(1, choices) if len(summaries) > 1 else 1
    reported = any(each.usage for each in summaries)
    return ChoiceTotals(prompt // shared, cached // shared, output, span, reported)
