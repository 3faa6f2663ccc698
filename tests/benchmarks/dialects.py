"""Streams of every dialect compared with OpenAI's chat completions, which engines speak themselves, in one run.

One server and one engine answer all of them in turn, so that only the translation differs.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from tests.benchmarks.load_generator import LoadJob, LoadResult, run_in_process
from tests.benchmarks.measuring import Spread, median, ms, percentile, processor_seconds, spread
from tests.support.server import LemonbusServer

MODEL: Final = "extra.tiny-loop"
CLIENTS: Final = (1, 8, 32)
TOKENS: Final = 256
STREAMS: Final = {1: 6, 8: 2, 32: 1}
"""Streams of a client in a round."""
REFERENCE: Final = "chat/completions"
DIALECTS: Final = ("responses", "messages", "ollama chat", "mullama generate", "llama.cpp completion")


class DialectComparison(msgspec.Struct):
    """One dialect with one number of clients, compared with chat completions in the same rounds."""

    dialect: str
    clients: int
    first: Spread
    """Milliseconds more until the first token (the medians of a round)."""
    tokens: Spread
    """Part of their tokens per second."""
    tokens_per_s: float
    gateway_us: Spread
    """The gateway's processor time per token, in microseconds; and its median for chat completions."""
    reference_us: float
    broken: int


def measure(rounds: int) -> list[DialectComparison]:
    """Measure with every number of clients."""
    with LemonbusServer(
        "tiny-loop", slots=max(CLIENTS), ctx_size=1024, log_level="info", gateway_workers=0, load=[MODEL]
    ) as server:
        server.wait_loaded(MODEL)
        run_in_process(LoadJob(server.port, MODEL, max(CLIENTS), 1, TOKENS, stream=True))
        gateway = server.gateway_pids()
        return [each for clients in CLIENTS for each in _compare(server.port, gateway, clients, rounds)]


class _Run(NamedTuple):
    result: LoadResult
    gateway_us: float
    """For a token."""

    @property
    def rate(self) -> float:
        return self.result.tokens / self.result.seconds


def _compare(port: int, gateway: list[int], clients: int, rounds: int) -> list[DialectComparison]:
    forms = (REFERENCE, *DIALECTS)
    runs: dict[str, list[_Run]] = {form: [] for form in forms}
    for turn in range(rounds):
        first = turn % len(forms)
        for form in forms[first:] + forms[:first]:
            job = LoadJob(port, MODEL, clients, STREAMS[clients], TOKENS, stream=True, form=form)
            before = processor_seconds(gateway)
            result = run_in_process(job)
            runs[form].append(_Run(result, (processor_seconds(gateway) - before) * 1e6 / result.tokens))
    return [_beside(dialect, clients, runs[dialect], runs[REFERENCE]) for dialect in DIALECTS]


def _beside(dialect: str, clients: int, ours: list[_Run], reference: list[_Run]) -> DialectComparison:
    pairs = list(zip(ours, reference, strict=True))
    return DialectComparison(
        dialect,
        clients,
        first=spread([_first(each) - _first(other) for each, other in pairs]),
        tokens=spread([each.rate / other.rate for each, other in pairs]),
        tokens_per_s=median([each.rate for each in ours]),
        gateway_us=spread([each.gateway_us for each in ours]),
        reference_us=median([each.gateway_us for each in reference]),
        broken=sum(each.result.broken for each in ours),
    )


def _first(run: _Run) -> float:
    return ms(percentile(run.result.first, 0.5))
