"""The harshest case: answers of one token and embeddings, each on a new connection, with an engine that was not warmed.

Classification, ranking and embedding requests are like this.  Such a request costs the engine the least, so that the way
through lemonbus weighs the most.  The engine alone is a twin that was started by hand, as idle and as cold as the one
behind lemonbus.
"""

from __future__ import annotations

import msgspec

from tests.benchmarks.engine_alone import engine_alone
from tests.benchmarks.load_generator import LoadJob, LoadResult, run_in_process
from tests.benchmarks.measuring import median, ms, percentile
from tests.support.server import LemonbusServer

CHAT, EMBED = "extra.tiny-loop", "extra.tiny-embed"
CLIENTS = (1, 8, 32)
REQUESTS = {1: 150, 8: 50, 32: 25}
"""Requests of a client in a round."""
SLOTS = 32


class OneTokenResult(msgspec.Struct):
    """One way to the engine, over all rounds. Milliseconds, and requests per second."""

    first_p50: float
    first_p99: float
    chat_per_s: float
    embeddings_per_s: float
    broken: int


class OneTokenComparison(msgspec.Struct):
    """What one number of clients saw, directly and through lemonbus."""

    clients: int
    direct: OneTokenResult
    lemonbus: OneTokenResult

    @property
    def first(self) -> float:
        """Milliseconds more until the first token."""
        return self.lemonbus.first_p50 - self.direct.first_p50

    @property
    def chat(self) -> float:
        """Part of the engine's rate of chat requests."""
        return self.lemonbus.chat_per_s / self.direct.chat_per_s

    @property
    def embeddings(self) -> float:
        """Part of the engine's rate of embedding requests."""
        return self.lemonbus.embeddings_per_s / self.direct.embeddings_per_s


class _Case(msgspec.Struct, frozen=True):
    model: str
    stream: bool
    form: str = "chat/completions"


_STREAMED = _Case(CHAT, stream=True)
_WHOLE = _Case(CHAT, stream=False)
_EMBEDDED = _Case(EMBED, stream=False, form="embeddings")


def measure(rounds: int) -> list[OneTokenComparison]:
    """Measure with every number of clients, the fewest first: more clients warm more of the engine's slots."""
    with LemonbusServer(
        "tiny-loop", "tiny-embed", slots=SLOTS, ctx_size=1024, log_level="info", gateway_workers=0, load=[CHAT, EMBED]
    ) as server:
        for model in (CHAT, EMBED):
            server.wait_loaded(model)
        with engine_alone(server.engine(CHAT)) as (chat, _), engine_alone(server.engine(EMBED)) as (embed, _):
            return [_compare(clients, rounds, server.port, {CHAT: chat, EMBED: embed}) for clients in CLIENTS]


def _compare(clients: int, rounds: int, ours: int, direct: dict[str, int]) -> OneTokenComparison:
    results: dict[tuple[bool, _Case], list[LoadResult]] = {}
    for number in range(rounds):
        for case in (_STREAMED, _WHOLE, _EMBEDDED):
            # The side that begins alternates: a change of the machine's speed within a round affects both alike.
            for through in (number % 2 == 0, number % 2 == 1):
                port = ours if through else direct[case.model]
                job = LoadJob(port, case.model, clients, REQUESTS[clients], 1, case.stream, case.form)
                results.setdefault((through, case), []).append(run_in_process(job))
    sides = [
        _summarize({case: results[through, case] for case in (_STREAMED, _WHOLE, _EMBEDDED)})
        for through in (False, True)
    ]
    return OneTokenComparison(clients, *sides)


def _summarize(results: dict[_Case, list[LoadResult]]) -> OneTokenResult:
    first = [value for result in results[_STREAMED] for value in result.first]
    return OneTokenResult(
        first_p50=ms(percentile(first, 0.5)),
        first_p99=ms(percentile(first, 0.99)),
        chat_per_s=_rate(results[_WHOLE]),
        embeddings_per_s=_rate(results[_EMBEDDED]),
        broken=sum(result.broken for all_of in results.values() for result in all_of),
    )


def _rate(results: list[LoadResult]) -> float:
    return median([result.requests / result.seconds for result in results])
