"""One model with one engine or two, on the machine of the server or on other nodes: first token, rates, and our processor time.

The nodes are real agents on this machine, which they reach by tcp with CURVE on the loopback address. So what differs is what
another node costs, without the time of a network. The engines share the processors of this machine: two of them are only faster if
one leaves some idle.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple

import msgspec

from tests.benchmarks.load_generator import LoadJob, run_in_process
from tests.benchmarks.measuring import Spread, ms, percentile, processor_seconds, spread
from tests.support.node_agents import NodeUnderTest, node_of, wait_joined
from tests.support.ports import free_port_pair
from tests.support.processes import ProcessInfo
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

MODEL: Final = "extra.tiny-loop"
CLIENTS: Final = 8
TOKENS: Final = 256
_ENGINES_S: Final = 60.0
_FIRST: Final = LoadJob(0, MODEL, 1, 60, 1, stream=True)
"""The hardest case: one token, on a new connection."""
_SMALL: Final = LoadJob(0, MODEL, CLIENTS, 25, 1, stream=False)
_STREAMS: Final = LoadJob(0, MODEL, CLIENTS, 3, TOKENS, stream=True)


class _Case(NamedTuple):
    name: str
    nodes: tuple[str, ...] = ()
    """Those besides the head; the model never runs on the head if there are any."""
    replicas: int = 1


_CASES: Final = (
    _Case("one machine"),
    _Case("one machine, two engines", replicas=2),
    _Case("on another node", ("gpu1",)),
    _Case("on two other nodes, an engine each", ("gpu1", "gpu2"), replicas=2),
)


class NodeFigures(msgspec.Struct):
    """Of one round. Processor time counts gateway, supervisor and worker, but no engine."""

    first_ms: float
    """Milliseconds until the token of an answer of one token, one client."""
    small_per_s: float
    """Answers of one token by :data:`CLIENTS` clients."""
    small_us: float
    """Microseconds of our processor time for one of these."""
    tokens_per_s: float
    """Of streams of :data:`TOKENS` tokens, :data:`CLIENTS` clients."""
    token_us: float
    """Microseconds of our processor time for one token of these."""


class NodeComparison(msgspec.Struct):
    """One case: medians and ranges over the rounds."""

    case: str
    figures: dict[str, Spread]
    ratios: dict[str, Spread]
    """To the first case in the same round."""

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Return the lines of the table."""
        digits = {"first_ms": ".2f"}
        yield self.case, *(_range(self.figures[name], digits.get(name, ".0f")) for name in _FIGURES)
        if self.ratios:
            yield "**to one machine**", *(_range(self.ratios[name], ".2f") for name in _FIGURES)


_FIGURES: Final = ("first_ms", "small_per_s", "small_us", "tokens_per_s", "token_us")


def measure(rounds: int) -> list[NodeComparison]:
    """Measure all cases in turn, each round beginning with another one."""
    seen: dict[_Case, list[NodeFigures]] = {case: [] for case in _CASES}
    with ExitStack() as stack:
        started = {case: stack.enter_context(_started(case)) for case in _CASES}
        for turn in range(rounds + 1):
            for case in _CASES[turn % len(_CASES) :] + _CASES[: turn % len(_CASES)]:
                figures = _round(*started[case])
                if turn:  # the first round warms everything up
                    seen[case].append(figures)
    return [_compared(case, seen[case], seen[_CASES[0]]) for case in _CASES]


@contextmanager
def _started(case: _Case) -> Iterator[tuple[LemonbusServer, list[NodeUnderTest]]]:
    settings: dict[str, Any] = {"models": {MODEL: {"replicas": case.replicas}}}
    if case.nodes:
        # With one model a node, the second engine is loaded on the second node.
        settings = {
            "models": {MODEL: {"replicas": case.replicas, "nodes": ["gpu*"]}},
            "cluster_address": f"127.0.0.1:{free_port_pair()}",
            "max_loaded_models": 1,
        }
    with (
        LemonbusServer("tiny-loop", slots=32, ctx_size=1024, log_level="info", gateway_workers=1, **settings) as server,
        ExitStack() as stack,
    ):
        nodes = [stack.enter_context(node_of(server, name)) for name in case.nodes]
        for node in nodes:
            wait_joined(server, node)
        answer = server.client.post("/v1/load", {"model_name": MODEL})
        assert answer.status == 200, answer.body
        wait_for(lambda: len(_engines(server, nodes)) == case.replicas, f"all engines of {case.name} run", _ENGINES_S)
        wait_for(
            lambda: server.state()["models"][0]["slots"] == 32 * case.replicas,
            f"all engines of {case.name} are ready",
            _ENGINES_S,
        )
        for node in nodes:
            assert len(node.engines()) == 1, f"{node.name} has an engine"
        yield server, nodes


def _engines(server: LemonbusServer, nodes: list[NodeUnderTest]) -> list[ProcessInfo]:
    trees = [server.process_tree(), *(node.process_tree() for node in nodes)]
    return [each for tree in trees for each in tree if each.runs("workers.engine_servers.llama_server")]


def _round(server: LemonbusServer, nodes: list[NodeUnderTest]) -> NodeFigures:
    workers = {engine.parent for engine in _engines(server, nodes)}
    ours = [server.supervisor_pid, *server.gateway_pids(), *workers]

    def run(job: LoadJob) -> tuple[Any, float]:
        before = processor_seconds(ours)
        result = run_in_process(msgspec.structs.replace(job, port=server.port))
        assert not result.broken, f"{result.broken} of the requests failed"
        return result, (processor_seconds(ours) - before) * 1e6

    first, _ = run(_FIRST)
    small, small_us = run(_SMALL)
    streams, streams_us = run(_STREAMS)
    return NodeFigures(
        first_ms=ms(percentile(first.first, 0.5)),
        small_per_s=small.requests / small.seconds,
        small_us=small_us / small.requests,
        tokens_per_s=streams.tokens / streams.seconds,
        token_us=streams_us / streams.tokens,
    )


def _compared(case: _Case, rounds: list[NodeFigures], reference: list[NodeFigures]) -> NodeComparison:
    def of(one: NodeFigures, name: str) -> float:
        return float(getattr(one, name))

    figures = {name: spread([of(each, name) for each in rounds]) for name in _FIGURES}
    pairs = list(zip(rounds, reference, strict=True)) if rounds is not reference else []
    ratios = {name: spread([of(one, name) / of(two, name) for one, two in pairs]) for name in _FIGURES if pairs}
    return NodeComparison(case.name, figures, ratios)


def _range(figure: Spread, form: str) -> str:
    return f"{figure.median:{form}} ({figure.least:{form}} to {figure.most:{form}})"
