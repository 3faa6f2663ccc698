"""The supervisor's side of one job: a ROUTER, the job's process, and what it said."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
import zmq

from protocol.config.settings import Settings, write_settings
from protocol.messages.admin import Progress
from protocol.messages.model_files import CheckpointSource, Pulled, PullFailed, StartPull
from protocol.messages.peers import Hello, Shutdown
from protocol.runtime.process_context import ProcessContext
from protocol.wire import endpoints, envelope

BOOT = "b00b00b00b00"
DEADLINE = 30.0


class JobRunner:
    """One runtime directory; jobs are started in it and talked to."""

    def __init__(self, cache: Path, environment: dict[str, str], **settings: Any) -> None:
        # Not pytest's directory: a socket's path has 107 bytes.
        self.runtime = Path(tempfile.mkdtemp(prefix="lb-"))
        self.cache = cache
        self._environment = environment
        write_settings(Settings(cache_dir=str(cache), log_format="json", **settings), self.runtime)
        self._context = zmq.Context()
        self._router: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.LINGER, 0)
        self._router.bind(endpoints.bus(self.runtime))
        self._jobs: dict[str, subprocess.Popen[bytes]] = {}
        self.messages: dict[str, list[msgspec.Struct]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for job in self._jobs.values():
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
            job.wait(DEADLINE)
        self._router.close()
        self._context.term()
        shutil.rmtree(self.runtime)

    def start(
        self, name: str = "j1", supervisor: int = 0, within: Sequence[str] = (), module: str = "workers.jobs.pull"
    ) -> subprocess.Popen[bytes]:
        """Start a job and wait for its Hello.

        ``supervisor``: the pid it shall watch instead of ours.  ``within``: a command that becomes the job.
        """
        process_context = ProcessContext(self.runtime, BOOT, supervisor or os.getpid(), supervisor or os.getpid())
        job = self._jobs[name] = subprocess.Popen(
            [*within, sys.executable, "-m", module],
            env={**os.environ, **self._environment, **process_context.environment(), "LEMONBUS_PEER": name},
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )
        self.messages[name] = []
        hello = self.until(name, Hello)
        assert hello == Hello("job", name, job.pid, BOOT)
        return job

    def order(self, name: str, *sources: CheckpointSource, model: str = "m") -> None:
        self.send(name, StartPull(model, list(sources), str(self.cache)))

    def leave(self, name: str) -> None:
        self.send(name, Shutdown(0.0, "draining"))

    def send(self, name: str, message: msgspec.Struct) -> None:
        self._router.send_multipart([name.encode(), envelope.encode(message)])

    def until(self, name: str, *kinds: type[msgspec.Struct]) -> Any:
        """Return the first message of one of these kinds; keep what else was said."""
        end = time.monotonic() + DEADLINE
        while True:
            for message in self.messages[name]:
                if isinstance(message, kinds):
                    self.messages[name].remove(message)
                    return message
            if not self._router.poll(max(0, int(1000 * (end - time.monotonic())))):
                raise AssertionError(f"{name} did not say {kinds}; it said {self.messages[name]}")
            sender, frame = self._router.recv_multipart()
            self.messages[sender.decode()].append(envelope.decode(frame)[0])

    def pull(self, *sources: CheckpointSource, name: str = "j1", within: Sequence[str] = ()) -> Pulled | PullFailed:
        """Run one job to its end; return its result."""
        self.start(name, within=within)
        self.order(name, *sources)
        return self.result(name)

    def result(self, name: str) -> Pulled | PullFailed:
        result: Pulled | PullFailed = self.until(name, Pulled, PullFailed)
        self.leave(name)
        assert self._jobs[name].wait(DEADLINE) == 0
        return result

    def progress(self, name: str = "j1") -> list[Progress]:
        return [message for message in self.messages[name] if isinstance(message, Progress)]
