"""How large the stacks of an engine's threads may become, read from its limits."""

from __future__ import annotations

import resource
from pathlib import Path

from tests.support import processes
from tests.workers.direct_engine import spec_of
from tests.workers.worker_process import running_worker
from workers.backends.llamacpp.backend import LlamaCppBackend


def test_llama_server_has_large_stacks_and_its_worker_has_not(tmp_path: Path) -> None:
    """A schema that makes an answer of 4,000 nested lists overflowed the stack of 8 MiB that its threads had."""
    with running_worker(tmp_path) as worker:
        worker.load(spec_of("tiny-chat"))
        (engine,) = processes.children(worker.process.pid)
        limits = [resource.prlimit(pid, resource.RLIMIT_STACK) for pid in (engine.pid, worker.process.pid)]
        maps = Path(f"/proc/{engine.pid}/smaps").read_text()
    own = resource.getrlimit(resource.RLIMIT_STACK)
    assert limits == [(LlamaCppBackend.stack_bytes, own[1]), own]
    assert f"Size: {LlamaCppBackend.stack_bytes // 1024:>18} kB" in maps
