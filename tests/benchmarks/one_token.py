"""The hardest case: answers of one token and embeddings, each on a new connection, first from cold engines.

Classification, ranking and embedding requests are like this. Such a request costs the engine least, so the cost of
lemonbus matters most. The engine alone is a copy that was started by hand, as idle and as cold as the one
behind lemonbus.

An engine's time for a request grows with the slots that were ever used. So everything is measured twice: before
anything else was requested, and after all slots of both engines were used, as in a server that has been up for a while.
"""

from __future__ import annotations

import msgspec

from tests.benchmarks.engine_alone import engine_alone
from tests.benchmarks.load_generator import LoadJob, LoadResult, run_in_process
from tests.benchmarks.measuring import Spread, median, ms, percentile, spread
from tests.support.server import LemonbusServer

CHAT, EMBED = "extra.tiny-loop", "extra.tiny-embed"
CLIENTS = (1, 8, 32)
REQUESTS = {1: 150, 8: 50, 32: 25}
"""Requests of a client in a round."""
SLOTS = 32
WARMING_TOKENS = 64
"""Length of the streams that use all slots at once."""


class OneTokenResult(msgspec.Struct):
    """One way to the engine, over all rounds. Milliseconds, and requests per second."""

    first_p50: float
    first_p99: float
    chat_per_s: float
    embeddings_per_s: float
    broken: int


class OneTokenComparison(msgspec.Struct):
    """Results for one number of clients, directly and through lemonbus."""

    clients: int
    used: bool
    """Whether all slots of the engines were used before."""
    direct: OneTokenResult
    lemonbus: OneTokenResult
    first: Spread
    """Milliseconds more until the first token: the medians of a round."""
    chats: Spread
    """Part of the engine's rate of chat requests in the same round."""
    embeddings: Spread
    """Part of the engine's rate of embedding requests in the same round."""


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
            direct = {CHAT: chat, EMBED: embed}
            cold = [_compare(clients, rounds, server.port, direct, used=False) for clients in CLIENTS]
            for model, form in ((CHAT, _STREAMED.form), (EMBED, _EMBEDDED.form)):
                for port in (server.port, direct[model]):
                    job = LoadJob(port, model, SLOTS, 1, WARMING_TOKENS, model == CHAT, form)
                    run_in_process(job)
            return cold + [_compare(clients, rounds, server.port, direct, used=True) for clients in CLIENTS]


def _compare(clients: int, rounds: int, ours: int, direct: dict[str, int], *, used: bool) -> OneTokenComparison:
    results: dict[tuple[bool, _Case], list[LoadResult]] = {}
    for number in range(rounds):
        for case in (_STREAMED, _WHOLE, _EMBEDDED):
            # The sides take turns to begin, so a change of the machine's speed within a round affects both alike.
            for through in (number % 2 == 0, number % 2 == 1):
                port = ours if through else direct[case.model]
                job = LoadJob(port, case.model, clients, REQUESTS[clients], 1, case.stream, case.form)
                results.setdefault((through, case), []).append(run_in_process(job))
    sides = [
        _summarize({case: results[through, case] for case in (_STREAMED, _WHOLE, _EMBEDDED)})
        for through in (False, True)
    ]

    def pairs(case: _Case) -> list[tuple[LoadResult, LoadResult]]:
        return list(zip(results[True, case], results[False, case], strict=True))

    return OneTokenComparison(
        clients,
        used,
        *sides,
        first=spread([_first(through) - _first(alone) for through, alone in pairs(_STREAMED)]),
        chats=spread([_rate(through) / _rate(alone) for through, alone in pairs(_WHOLE)]),
        embeddings=spread([_rate(through) / _rate(alone) for through, alone in pairs(_EMBEDDED)]),
    )


def _summarize(results: dict[_Case, list[LoadResult]]) -> OneTokenResult:
    first = [value for result in results[_STREAMED] for value in result.first]
    return OneTokenResult(
        first_p50=ms(percentile(first, 0.5)),
        first_p99=ms(percentile(first, 0.99)),
        chat_per_s=median([_rate(result) for result in results[_WHOLE]]),
        embeddings_per_s=median([_rate(result) for result in results[_EMBEDDED]]),
        broken=sum(result.broken for all_of in results.values() for result in all_of),
    )


def _rate(result: LoadResult) -> float:
    return result.requests / result.seconds


def _first(result: LoadResult) -> float:
    return ms(percentile(result.first, 0.5))
