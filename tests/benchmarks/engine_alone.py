"""The engine alone: the same command line that a worker used, on another port."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.measuring import until
from tests.support.clients.http_client import RawHttpClient
from tests.support.ports import free_port
from tests.support.processes import ENGINE_KEYS, ProcessInfo


class EngineCommand(NamedTuple):
    """How a worker started an engine: command line, environment without its key, and scheduling policy."""

    words: list[str]
    environment: dict[str, str]
    policy: int = os.SCHED_OTHER

    @classmethod
    def of(cls, engine: ProcessInfo) -> EngineCommand:
        """Return those of a running engine."""
        environment = dict(
            entry.split("=", 1)
            for entry in Path(f"/proc/{engine.pid}/environ").read_bytes().decode().split("\0")
            if "=" in entry
        )
        for name in ENGINE_KEYS:
            environment.pop(name, None)
        environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), environment.get("PYTHONPATH", "")])
        return cls(list(engine.words), environment, os.sched_getscheduler(engine.pid))

    def start(
        self, port: int, model: Path | None = None, *, policy: bool = False, session: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start a copy on another port, with another model if one is given.

        ``policy``: with the worker's scheduling policy. ``session``: in a session of its own, as workers do, which
        counts for the share of the processors that the kernel gives it.
        """
        words = [str(model) if model and word.endswith(".gguf") else word for word in self.words]
        words[words.index("--port") + 1] = str(port)
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(words, env=self.environment, stdout=quiet, stderr=quiet, start_new_session=session)
        if policy:
            with contextlib.suppress(PermissionError):  # in a sandbox where no worker can choose it either
                os.sched_setscheduler(process.pid, self.policy, os.sched_param(0))
        return process


@contextmanager
def engine_alone(engine: ProcessInfo, *, policy: bool = False) -> Iterator[tuple[int, float]]:
    """Start a copy of a running engine; yield its port, and the seconds from exec to its first healthy answer.

    ``policy``: use the scheduling policy that the worker chose for its engine, instead of this process's, as if the

    copy had been started by hand. The copy demands no key.
    """
    port = free_port()
    command = EngineCommand.of(engine)
    client = RawHttpClient(port)
    started = time.perf_counter()
    process = command.start(port, policy=policy)
    try:
        until(lambda: is_healthy(client), 30.0)
        yield port, time.perf_counter() - started
    finally:
        process.terminate()
        process.wait(10)


def is_healthy(client: RawHttpClient) -> bool:
    """Return whether an engine answers that it is ready."""
    try:
        return client.get("/health", patience=1.0).status == 200
    except OSError:
        return False
