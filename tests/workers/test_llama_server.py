"""Our own llama-server as a process: how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

from protocol.config.settings import Settings
from tests.support.ports import free_port
from tests.support.waiting import wait_for
from tests.workers.direct_engine import DirectEngine, spec_of
from workers.backends.llamacpp.backend import LlamaCppBackend

TOGETHER = 8
"""Enough to starve each other, as a machine does on which many models are loaded."""


def test_it_ends_as_soon_as_it_is_told_also_when_it_has_just_begun(tmp_path: Path) -> None:
    backend = LlamaCppBackend(spec_of("tiny-chat"), Settings(cache_dir=str(tmp_path)))
    backend.prepare()
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with ExitStack() as stack:
        engines = {port: backend.command(port) for port in (free_port() for _ in range(TOGETHER))}
        waiting = {
            port: stack.enter_context(
                subprocess.Popen(command, env=backend.environment(dict(os.environ)), **quiet)  # type: ignore[call-overload]
            )
            for port, command in engines.items()
        }
        for process in waiting.values():
            stack.callback(process.kill)
        ended: list[subprocess.Popen[bytes]] = []

        def end_the_healthy() -> bool:
            for port, process in list(waiting.items()):
                if DirectEngine(port).healthy():
                    process.terminate()
                    ended.append(waiting.pop(port))
            return not waiting

        wait_for(end_the_healthy, "all are healthy", 20)
        # The signal itself ends one that is not yet there to hear it.
        assert {process.wait(10) for process in ended} <= {0, -signal.SIGTERM}
