"""The benchmark's tables, as markdown, and its figures, as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator

import msgspec

from tests.benchmarks.bus_transports import TransportCost
from tests.benchmarks.dialects import DialectComparison
from tests.benchmarks.embeddings import EmbeddingComparison
from tests.benchmarks.footprint import Footprint
from tests.benchmarks.goals import (
    Goal,
    broken_answers,
    dialect_goals,
    embedding_goals,
    footprint_goals,
    key_goals,
    latency_goals,
    memory_goals,
    mixed_goals,
    node_loss_goals,
    one_token_goals,
    open_page_goals,
    prompt_cache_goals,
    recovery_goals,
    throughput_goals,
)
from tests.benchmarks.latencies import Latencies
from tests.benchmarks.memory_estimates import MemoryComparison
from tests.benchmarks.mixed import MixedComparison
from tests.benchmarks.node_loss import NodeLossTimes
from tests.benchmarks.nodes import NodeComparison
from tests.benchmarks.one_token import OneTokenComparison
from tests.benchmarks.open_page import OpenPageCost
from tests.benchmarks.processor_time import ProcessorTime
from tests.benchmarks.prompt_cache import PromptCacheResult
from tests.benchmarks.recovery import RecoveryTimes
from tests.benchmarks.report_tables import (
    CACHE_COLUMNS,
    COLUMNS,
    dialect_rows,
    embedding_rows,
    latency_rows,
    mixed_section,
    number,
    one_token_rows,
    processor_rows,
    prompt_cache_rows,
    recovery_rows,
    table,
    throughput_table,
)
from tests.benchmarks.throughput import Comparison


class BenchmarkReport(msgspec.Struct):
    """Everything that was measured; parts that were not requested are empty."""

    machine: str
    comparisons: list[Comparison] = []
    latencies: Latencies | None = None
    one_token: list[OneTokenComparison] = []
    embeddings: list[EmbeddingComparison] = []
    dialects: list[DialectComparison] = []
    processor_time: list[ProcessorTime] = []
    prompt_caches: list[PromptCacheResult] = []
    mixed: list[MixedComparison] = []
    recovery: RecoveryTimes | None = None
    open_page: list[OpenPageCost] = []
    nodes: list[NodeComparison] = []
    node_loss: list[NodeLossTimes] = []
    transports: list[TransportCost] = []
    footprint: Footprint | None = None
    memory_estimates: list[MemoryComparison] = []

    @property
    def goals(self) -> list[Goal]:
        return [
            *throughput_goals(self.comparisons),
            *one_token_goals(self.one_token),
            *embedding_goals(self.embeddings),
            *dialect_goals(self.dialects),
            *key_goals(self.processor_time),
            *(latency_goals(self.latencies) if self.latencies else ()),
            *prompt_cache_goals(self.prompt_caches),
            *mixed_goals(self.mixed),
            *(recovery_goals(self.recovery) if self.recovery else ()),
            *open_page_goals(self.open_page),
            *node_loss_goals(self.node_loss),
            *(footprint_goals(self.footprint) if self.footprint else ()),
            *memory_goals(self.memory_estimates),
            broken_answers(self.comparisons, self.one_token, self.embeddings, self.dialects),
        ]

    def json(self) -> bytes:
        """Return the figures and the judgement."""
        judgement = [{**goal._asdict(), "mark": goal.mark} for goal in self.goals]
        figures = {**msgspec.structs.asdict(self), "goals": judgement}
        return msgspec.json.format(msgspec.json.encode(figures), indent=2)

    def markdown(self) -> str:
        """Return the tables."""
        parts = [f"Measured on {self.machine}. A new connection for each request."]
        if self.comparisons:
            parts += [
                "Streams of 256 tokens, small requests of 8.",
                table(("clients", "", *COLUMNS), throughput_table(self.comparisons)),
            ]
        if self.one_token:
            parts += [
                "Answers of one token, and embeddings; medians and ranges of the rounds.",
                table(
                    ("slots of the engine", "clients", "", "first token p50/p99 ms", "chats/s", "embeddings/s"),
                    one_token_rows(self.one_token),
                ),
            ]
        if self.embeddings:
            parts += [
                "Embeddings of a text of 16 tokens; medians and ranges of the rounds. Processor time of a request, µs.",
                table(
                    ("clients", "direct/s", "lemonbus/s", "**to direct**", "ours", "engine"),
                    embedding_rows(self.embeddings),
                ),
            ]
        if self.dialects:
            parts += [
                "Streams of 256 tokens beside those of chat/completions; medians and ranges of the rounds.",
                table(
                    ("dialect", "clients", "first token", "tokens/s", "", "gateway µs/token (chat)"),
                    dialect_rows(self.dialects),
                ),
            ]
        if self.processor_time:
            parts += [
                "Processor time of a request, µs.",
                table(
                    ("request", "clients", "caller", "gateway", "supervisor", "worker", "ours", "engine", "requests/s"),
                    processor_rows(self.processor_time),
                ),
            ]
        if self.latencies:
            parts.append(table(("moment", "ms"), latency_rows(self.latencies)))
        if self.prompt_caches:
            parts.append("A conversation of 3,000 tokens; another model is loaded between its turns.")
            parts.append(table(CACHE_COLUMNS, prompt_cache_rows(self.prompt_caches)))
        parts += mixed_section(self.mixed)
        if self.recovery:
            parts.append(table(("a supervisor is killed", ""), recovery_rows(self.recovery)))
        parts += self._memory()
        judged = [(g.what, f"{number(g.value)} {g.unit}", number(g.now), number(g.next), g.mark) for g in self.goals]
        parts.append(table(("goal", "figure", "to reach", "further", ""), judged))
        return "\n\n".join(parts) + "\n"

    def _memory(self) -> Iterator[str]:
        if self.open_page:
            yield "What open pages add to the processor time of supervisor and gateways, percent of one processor."
            yield table(("server", "without", "one page", "ten pages"), [each.row() for each in self.open_page])
        if self.nodes:
            yield "One model on this machine and on other nodes; medians and ranges. Processor time without engines, µs."
            yield table(
                ("", "first token ms", "small/s", "µs each", "tokens/s", "µs each"),
                [row for each in self.nodes for row in each.rows()],
            )
        if self.node_loss:
            yield "A node is lost: seconds until its stream is told; medians and ranges."
            yield table(("what ends", "s", "errors but node_lost"), [each.row() for each in self.node_loss])
        if self.transports:
            yield "A token between worker and gateway: µs on the way, and µs of processor time of both. One stream."
            yield table(("transport", "way p50", "way p99", "worker", "gateway"), [it.row() for it in self.transports])
        if self.footprint:
            yield table(("process", "PSS, MB"), self.footprint.rows())
        if self.memory_estimates:
            head = ("model", "options", "estimated, MB", "measured, MB", "error")
            rows = [
                (each.model, each.options, number(each.estimated), number(each.measured), f"{each.error:+.1%}")
                for each in self.memory_estimates
            ]
            yield table(head, rows)


def machine() -> str:
    """Name the machine that it was measured on."""
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
