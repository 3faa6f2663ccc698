"""Memory: the PSS of every process with eight workers loaded. Megabytes (10⁶ bytes)."""

from __future__ import annotations

import msgspec

from tests.benchmarks.measuring import median
from tests.support import processes
from tests.support.models.tiny_models import tiny_models
from tests.support.server import LemonbusServer

WORKERS = 8


class Footprint(msgspec.Struct):
    """``gateway`` is the master with its workers, ``worker`` the median of workers with a model; engines are separate."""

    supervisor: float
    gateway: float
    worker: float
    workers: list[float]
    spare: float
    engine: float

    def rows(self) -> list[tuple[str, float]]:
        """Return the lines of the table."""
        return [
            ("supervisor", self.supervisor),
            ("gateway, all processes", round(self.gateway, 2)),
            (f"worker, median of {len(self.workers)}", self.worker),
            ("spare worker", self.spare),
            ("engine (not ours)", self.engine),
        ]


def measure() -> Footprint:
    """Load eight models and measure."""
    with LemonbusServer(
        "tiny-chat", max_loaded_models=WORKERS, ctx_size=1024, log_level="info", gateway_workers=0
    ) as server:
        names = [f"eighth-{number}" for number in range(WORKERS)]
        for name in names:
            (server.models / f"{name}.gguf").symlink_to(tiny_models() / "models" / "tiny-chat.gguf")
        for name in names:
            for _ in range(3):
                assert server.client.chat(f"extra.{name}").status == 200
        engines = [server.engine(f"extra.{name}") for name in names]
        loaded = {engine.parent for engine in engines}
        workers = [_megabytes(pid) for pid in loaded]
        spare = [_megabytes(worker.pid) for worker in server.workers() if worker.pid not in loaded]
        return Footprint(
            supervisor=_megabytes(server.supervisor_pid),
            gateway=sum(_megabytes(pid) for pid in [server.gateway_master(), *server.gateway_pids()]),
            worker=median(workers),
            workers=sorted(workers),
            spare=sum(spare),
            engine=median([_megabytes(engine.pid) for engine in engines]),
        )


def _megabytes(pid: int) -> float:
    return round(processes.memory(pid) / 1e6, 1)
