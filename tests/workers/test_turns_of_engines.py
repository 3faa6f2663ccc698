"""How engines share the processors with the rest of the house: sched(7), read off real threads."""

from __future__ import annotations

import os
from pathlib import Path

from tests.house import processes
from tests.workers.engines import spec_of
from tests.workers.stand import Stand, stand


def policies(pid: int) -> set[int]:
    return {os.sched_getscheduler(int(thread.name)) for thread in Path(f"/proc/{pid}/task").iterdir()}


def policies_of_both(worker: Stand) -> tuple[set[int], set[int]]:
    """Those of a worker, and of the engine it was made to start."""
    worker.load(spec_of("tiny-chat"))
    worker.subscribe()
    worker.run(1, "chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4})
    worker.ended(1)
    (engine,) = processes.children(worker.process.pid)
    return policies(worker.process.pid), policies(engine.pid)


def test_all_of_an_engine_waits_for_its_turn_and_nothing_of_its_worker_does(tmp_path: Path) -> None:
    with stand(tmp_path) as worker:
        assert policies_of_both(worker) == ({os.SCHED_OTHER}, {os.SCHED_BATCH})


def test_what_an_administrator_chose_is_left(tmp_path: Path) -> None:
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        with stand(tmp_path) as worker:
            assert policies_of_both(worker) == ({os.SCHED_BATCH}, {os.SCHED_BATCH})
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
