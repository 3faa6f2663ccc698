"""The supervisor's side of one job: a ROUTER, the job's process, and its messages."""

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

from protocol.config.settings import Settings, write_settings
from protocol.messages.calls import Progress
from protocol.messages.model_files import CheckpointSource, Pulled, PullFailed, StartPull
from protocol.messages.peers import Hello, Shutdown, Welcome
from protocol.messages.recovery import JobSnapshot
from protocol.runtime.process_context import ProcessContext
from protocol.wire import envelope
from tests.support.fakes.supervisor import SupervisorStandIn

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
        self._supervisor = SupervisorStandIn(self.runtime, mortal=True)
        self._jobs: dict[str, subprocess.Popen[bytes]] = {}
        self.messages: dict[str, list[msgspec.Struct]] = {}
        self.snapshots: dict[str, JobSnapshot] = {}
        """What came with the last Hello of each job."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for job in self._jobs.values():
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
            job.wait(DEADLINE)
        self._supervisor.close()
        shutil.rmtree(self.runtime)

    def start(
        self, name: str = "j1", keeper: int = 0, within: Sequence[str] = (), module: str = "workers.jobs.pull"
    ) -> subprocess.Popen[bytes]:
        """Start a job and wait for its Hello.

        ``keeper``: the pid whose end ends it, instead of ours.  ``within``: a command that becomes the job.
        """
        process_context = ProcessContext(self.runtime, BOOT, keeper or os.getpid())
        job = self._jobs[name] = subprocess.Popen(
            [*within, sys.executable, "-m", module],
            env={**os.environ, **self._environment, **process_context.environment(), "LEMONBUS_PEER": name},
            cwd=Path(__file__).parents[3],
            start_new_session=True,
        )
        self.messages[name] = []
        self._welcome(name)
        return job

    def _welcome(self, name: str) -> None:
        assert self.until(name, Hello) == Hello("job", name, self._jobs[name].pid, BOOT)
        self.send(name, Welcome(BOOT, self._supervisor.pid))

    def lose_supervisor(self) -> None:
        """Kill the supervisor."""
        self._supervisor.die()
        for messages in self.messages.values():
            messages.clear()

    def get_supervisor(self, name: str) -> JobSnapshot:
        """Start the next supervisor; return what a job tells it."""
        self._supervisor = SupervisorStandIn(self.runtime, mortal=True)
        self._welcome(name)
        return self.snapshots[name]

    def order(self, name: str, *sources: CheckpointSource, model: str = "m") -> None:
        self.send(name, StartPull(model, list(sources), str(self.cache)))

    def leave(self, name: str) -> None:
        self.send(name, Shutdown(0.0, "draining"))

    def send(self, name: str, message: msgspec.Struct) -> None:
        self._supervisor.send(name, message)

    def until(self, name: str, *kinds: type[msgspec.Struct]) -> Any:
        """Return the first message of one of these kinds; keep what else was said."""
        end = time.monotonic() + DEADLINE
        while True:
            for message in self.messages[name]:
                if isinstance(message, kinds):
                    self.messages[name].remove(message)
                    return message
            if not self._supervisor.router.poll(max(0, int(1000 * (end - time.monotonic())))):
                raise AssertionError(f"{name} did not say {kinds}; it said {self.messages[name]}")
            sender, frame = self._supervisor.router.recv_multipart()
            message, payload = envelope.decode(frame)
            self.messages[sender.decode()].append(message)
            if isinstance(message, Hello):
                self.snapshots[sender.decode()] = envelope.unpack_payload(payload, JobSnapshot)

    def pull(self, *sources: CheckpointSource, name: str = "j1", within: Sequence[str] = ()) -> Pulled | PullFailed:
        """Run one job to its end; return its result."""
        self.start(name, within=within)
        self.order(name, *sources)
        return self.result(name)

    def result(self, name: str) -> Pulled | PullFailed:
        result: Pulled | PullFailed = self.until(name, Pulled, PullFailed)
        self.dismiss(name)
        return result

    def dismiss(self, name: str) -> None:
        """Tell a job to end, and wait until it has."""
        self.leave(name)
        assert self._jobs[name].wait(DEADLINE) == 0

    def kill(self, name: str) -> None:
        """Kill a job."""
        os.killpg(self._jobs[name].pid, signal.SIGKILL)
        self._jobs[name].wait(DEADLINE)

    def progress(self, name: str = "j1") -> list[Progress]:
        return [message for message in self.messages[name] if isinstance(message, Progress)]
