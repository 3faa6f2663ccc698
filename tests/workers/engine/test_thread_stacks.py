"""The maximum size of the stacks of an engine's threads, read from its limits."""

from __future__ import annotations

import resource
from pathlib import Path

from tests.support import processes
from tests.workers.direct_engine import spec_of
from tests.workers.worker_process import running_worker
from workers.backends.llamacpp.backend import LlamaCppBackend

GUARD_KB = 64


def test_llama_server_has_large_stacks_and_its_worker_has_not(tmp_path: Path) -> None:
    """A schema for an answer of 4,000 nested lists overflowed its threads' former stacks of 8 MiB."""
    with running_worker(tmp_path) as worker:
        worker.load(spec_of("tiny-chat"))
        (engine,) = processes.children(worker.process.pid)
        limits = [resource.prlimit(pid, resource.RLIMIT_STACK) for pid in (engine.pid, worker.process.pid)]
        maps = Path(f"/proc/{engine.pid}/smaps").read_text()
    own = resource.getrlimit(resource.RLIMIT_STACK)
    assert limits == [(LlamaCppBackend.stack_bytes, own[1]), own]
    # The C library adds guard pages to a stack or takes them from it, and the kernel may show neighbours as one.
    sizes = [int(line.split()[1]) for line in maps.splitlines() if line.startswith("Size:")]
    assert max(sizes) >= LlamaCppBackend.stack_bytes // 1024 - GUARD_KB
