"""The engine alone: the same command line that a worker used, on another port."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.measuring import until
from tests.support.clients.http_client import RawHttpClient
from tests.support.ports import free_port
from tests.support.processes import ENGINE_KEYS, ProcessInfo


@contextmanager
def engine_alone(engine: ProcessInfo, *, policy: bool = False) -> Iterator[tuple[int, float]]:
    """Start a copy of a running engine; yield its port, and the seconds from exec to its first healthy answer.

    ``policy``: use the scheduling policy that the worker chose for its engine, instead of this process's, as if the

    copy had been started by hand. The copy demands no key.
    """
    port = free_port()
    words = list(engine.words)
    words[words.index("--port") + 1] = str(port)
    environment = dict(
        entry.split("=", 1)
        for entry in Path(f"/proc/{engine.pid}/environ").read_bytes().decode().split("\0")
        if "=" in entry
    )
    for name in ENGINE_KEYS:
        environment.pop(name, None)
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), environment.get("PYTHONPATH", "")])
    client = RawHttpClient(port)
    started = time.perf_counter()
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if policy:
        with contextlib.suppress(PermissionError):  # in a sandbox where no worker can choose it either
            os.sched_setscheduler(process.pid, os.sched_getscheduler(engine.pid), os.sched_param(0))
    try:
        until(lambda: _healthy(client), 30.0)
        yield port, time.perf_counter() - started
    finally:
        process.terminate()
        process.wait(10)


def _healthy(client: RawHttpClient) -> bool:
    try:
        return client.get("/health", patience=1.0).status == 200
    except OSError:
        return False
