"""What is computed from measured requests, as values for programs and as a table for people. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from gateway.cli import output
from gateway.cli.benchmark.measurement import MeasuredRequest, StreamsAtOnce

_BUSY: Final = 0.8
"""The share of a core from which this process may itself have been too slow."""
_NOTED: Final = 0.1
"""The share of prompt tokens from a cache that is mentioned. The beginning of the chat template always is in one."""


class MeasuredRange(msgspec.Struct, frozen=True):
    """The median of some values, and the range that they are in."""

    median: float
    least: float
    most: float

    def shown(self, digits: int) -> str:
        """Return it for a table."""
        if self.least == self.most:
            return f"{self.median:.{digits}f}"
        return f"{self.median:.{digits}f} ({self.least:.{digits}f}-{self.most:.{digits}f})"


def measured_range(values: Iterable[float | None]) -> MeasuredRange | None:
    """Return the range of the values that there are, None if there are none."""
    found = [value for value in values if value is not None]
    return MeasuredRange(statistics.median(found), min(found), max(found)) if found else None


class LevelReport(msgspec.Struct, omit_defaults=True):
    """What was measured with a number of streams. Without successful requests it has no figures; times in seconds."""

    streams: int
    requests: int = 0
    failed: int = 0
    errors: dict[str, int] = {}
    """Why requests failed → how many."""
    skipped: str = ""
    """Why it was not measured."""
    seconds: float = 0.0
    first_token_s: MeasuredRange | None = None
    tokens_per_second_each: MeasuredRange | None = None
    """Of one stream, from its first token on."""
    tokens_per_second: float = 0.0
    """Of all streams together, from the first request to the end of the last answer."""
    prompt_tokens_per_second: MeasuredRange | None = None
    """Prompt tokens by the time to the first token, with any wait for a slot."""
    prompt_tokens: int = 0
    """The median."""
    cached_tokens: int = 0
    output_tokens: int = 0
    client_busy: float = 0.0
    """The share of a core that the measuring program used."""


def level_report(measured: StreamsAtOnce) -> LevelReport:
    """Return what requests with this number of streams have in common. Failed ones only count as failed."""
    whole = [each for each in measured.requests if not each.error]
    errors = Counter(each.error for each in measured.requests if each.error)
    tokens = sum(each.output_tokens for each in whole)
    return LevelReport(
        streams=measured.streams,
        requests=len(measured.requests),
        failed=errors.total(),
        errors=dict(errors.most_common()),
        seconds=round(measured.seconds, 4),
        first_token_s=measured_range(each.first_token_s for each in whole),
        tokens_per_second_each=measured_range(each.tokens_per_second for each in whole),
        tokens_per_second=round(tokens / measured.seconds, 2) if whole and measured.seconds > 0 else 0.0,
        prompt_tokens_per_second=measured_range(each.prompt_tokens_per_second for each in whole),
        prompt_tokens=round(statistics.median(each.prompt_tokens for each in whole)) if whole else 0,
        cached_tokens=sum(each.cached_tokens for each in whole),
        output_tokens=tokens,
        client_busy=round(measured.busy, 3),
    )


class BenchReport(msgspec.Struct):
    """All that `lemonbus bench` found out. ``None``: unknown, or not measured."""

    model: str
    url: str
    recipe: str
    slots: int | None
    context: int | None
    load_seconds: float | None
    """None: it was loaded already, or the first request has loaded it."""
    first_request: MeasuredRequest | None
    """Directly after the load."""
    levels: list[LevelReport]
    notes: list[str]
    interrupted: bool = False


def level_notes(level: LevelReport, slots: int) -> list[str]:
    """Return what a reader of these figures must know, in sentences."""
    notes = []
    name = f"{level.streams} stream{'s' * (level.streams > 1)}"
    if level.skipped:
        return [f"{name}: not measured: {level.skipped}."]
    if 0 < slots < level.streams:
        notes.append(
            f"{name}: the model has {slots} slot{'s' * (slots > 1)}, so up to {level.streams - slots} requests waited;"
            " their times to the first token include the wait."
        )
    for reason, count in level.errors.items():
        notes.append(f"{name}: {count} of {level.requests} requests failed: {reason}")
    if level.cached_tokens > _NOTED * level.prompt_tokens * level.requests:
        notes.append(f"{name}: {level.cached_tokens} prompt tokens came from a cache and count for no speed.")
    if level.client_busy > _BUSY:
        notes.append(
            f"{name}: this program itself used {level.client_busy:.0%} of a core, so the server may be faster than shown."
        )
    return notes


def print_table(levels: list[LevelReport]) -> None:
    """Print a row for each number of streams."""
    head = ("STREAMS", "REQUESTS", "FAILED", "FIRST TOKEN S", "TOKENS/S EACH", "TOKENS/S", "PROMPT", "PROMPT TOKENS/S")
    rows = [
        (
            level.streams,
            level.requests,
            level.failed,
            _shown(level.first_token_s, 3),
            _shown(level.tokens_per_second_each, 1),
            f"{level.tokens_per_second:.1f}" if level.tokens_per_second else "-",
            level.prompt_tokens or "-",
            _shown(level.prompt_tokens_per_second, 0),
        )
        for level in levels
        if not level.skipped
    ]
    output.table(head, rows)


def _shown(values: MeasuredRange | None, digits: int) -> str:
    return values.shown(digits) if values is not None else "-"
