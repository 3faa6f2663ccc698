"""The scheduling policy of engines and workers (sched(7)), read from real threads."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tests.support import processes
from tests.workers.direct_engine import spec_of
from tests.workers.worker_process import WorkerProcess, running_worker


def policies(pid: int) -> set[int]:
    found = set()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            found.add(os.sched_getscheduler(int(thread.name)))
    return found


def policies_of_both(worker: WorkerProcess) -> tuple[set[int], set[int]]:
    """The threads of a worker, and of the engine that it has started."""
    worker.load(spec_of("tiny-chat"))
    worker.subscribe()
    worker.run(1, "chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4})
    worker.ended(1)
    (engine,) = processes.children(worker.process.pid)
    return policies(worker.process.pid), policies(engine.pid)


def test_engine_threads_run_as_sched_batch_and_worker_threads_do_not(tmp_path: Path) -> None:
    with running_worker(tmp_path) as worker:
        assert policies_of_both(worker) == ({os.SCHED_OTHER}, {os.SCHED_BATCH})


def test_a_scheduling_policy_set_by_the_administrator_is_kept(tmp_path: Path) -> None:
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        with running_worker(tmp_path) as worker:
            assert policies_of_both(worker) == ({os.SCHED_BATCH}, {os.SCHED_BATCH})
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
