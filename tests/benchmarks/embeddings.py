"""Embeddings of a model that has some work to do, directly and through lemonbus, alternating in one run.

The engine has the slots that lemonbus gives it by default. An engine alone has a queue of its own, so it never waits for
its next request.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import msgspec

from tests.benchmarks.engine_alone import engine_alone
from tests.benchmarks.load_generator import LoadJob, LoadResult, run_in_process
from tests.benchmarks.measuring import Spread, median, processor_seconds, spread
from tests.support.models import bert_gguf
from tests.support.server import LemonbusServer

CLIENTS: Final = (1, 8, 32)
REQUESTS: Final = {1: 100, 8: 20, 32: 8}
"""Requests of a client in a round."""
_FORM: Final = "embeddings of a sentence"


class EmbeddingComparison(msgspec.Struct):
    """Results for one number of clients. Medians of the rounds."""

    clients: int
    direct_per_s: float
    lemonbus_per_s: float
    ratio: Spread
    """Part of the engine's rate in the same round."""
    ours_us: float
    """Processor time of gateway, supervisor and worker for a request, in microseconds."""
    engine_us: float
    """The engine's, behind lemonbus."""
    broken: int


def measure(rounds: int, model: Path | None = None) -> list[EmbeddingComparison]:
    """Measure with every number of clients: a model of the size of all-MiniLM-L6-v2, or the GGUF file of a real one."""
    with tempfile.TemporaryDirectory() as folder:
        if model is None:
            bert_gguf.write(Path(folder) / "mini-embed.gguf", "mini-embed", ranks=False, seed=7, size=bert_gguf.MINILM)
        else:
            (Path(folder) / model.name).symlink_to(model.resolve())
        name = f"extra.{model.stem if model else 'mini-embed'}"
        with LemonbusServer(
            extra_models_dir=folder, log_level="info", ctx_size=512, gateway_workers=0, load=[name]
        ) as server:
            server.wait_loaded(name)
            with engine_alone(server.engine(name)) as (direct, _):
                for port in (server.port, direct):
                    run_in_process(LoadJob(port, name, max(CLIENTS), 1, 1, stream=False, form=_FORM))
                return [_compare(server, name, direct, clients, rounds) for clients in CLIENTS]


def _compare(server: LemonbusServer, model: str, direct: int, clients: int, rounds: int) -> EmbeddingComparison:
    engine = server.engine(model)
    processes = [[*server.gateway_pids(), server.supervisor_pid, engine.parent], [engine.pid]]
    alone: list[LoadResult] = []
    through: list[LoadResult] = []
    used: list[list[float]] = []
    for turn in range(rounds):
        # The sides take turns to begin, so a change of the machine's speed within a round affects both alike.
        for ours in (turn % 2 == 0, turn % 2 == 1):
            job = LoadJob(server.port if ours else direct, model, clients, REQUESTS[clients], 1, False, _FORM)
            if not ours:
                alone.append(run_in_process(job))
                continue
            before = [processor_seconds(pids) for pids in processes]
            result = run_in_process(job)
            used.append(
                [
                    1e6 * (processor_seconds(pids) - start) / result.requests
                    for pids, start in zip(processes, before, strict=True)
                ]
            )
            through.append(result)
    rates = [[result.requests / result.seconds for result in side] for side in (alone, through)]
    return EmbeddingComparison(
        clients,
        *(median(side) for side in rates),
        ratio=spread([ours / engines for engines, ours in zip(*rates, strict=True)]),
        ours_us=median([each[0] for each in used]),
        engine_us=median([each[1] for each in used]),
        broken=sum(result.broken for result in through),
    )
