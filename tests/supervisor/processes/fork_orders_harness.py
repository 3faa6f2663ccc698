"""A supervisor that orders processes of a fork server, whose answers are the test's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from protocol import RELEASE
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from supervisor.keeper import channel
from supervisor.keeper.channel import Channel
from supervisor.processes.child_processes import ChildProcess, ChildProcesses
from supervisor.processes.fork_orders import FORKED, SERVES

MODULE = "workers.jobs.describe"


class Orders:
    """A supervisor's processes, and the other end of its channel to the fork server."""

    def __init__(self, tmp_path: Path, stack: ExitStack) -> None:
        self.loop = Loop()
        self.children = ChildProcesses(self.loop, ProcessContext(tmp_path, "boot", os.getpid()))
        self.fork_server = self.connect()
        self.ends: list[str] = []
        self._stack = stack
        stack.callback(self.loop.close)
        stack.callback(self._end)

    def connect(self, release: str = RELEASE) -> Channel:
        """Let the supervisor have a fork server; return that one's end of their channel."""
        ours, theirs = channel.pair()
        ours.send(SERVES, release)
        self.children.use_fork_server(theirs.detach())
        return ours

    def _end(self) -> None:
        self.fork_server.close()
        self.children.kill_all()
        self.turn(lambda: len(self.children) == 0)
        self.loop.run_once(0.1)  # it reads the end of the channel

    def start(self, module: str = MODULE) -> ChildProcess:
        return self.children.start("job", module, self.ends.append, {"LEMONBUS_PEER": "j1"})

    def turn(self, until: Callable[[], object]) -> None:
        end = self.loop.now() + 15
        while not until():
            assert self.loop.now() < end
            self.loop.run_once(0.05)

    def process(self) -> subprocess.Popen[bytes]:
        """Start what the fork server would fork."""
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        return process

    def order(self, child: ChildProcess | None = None) -> subprocess.Popen[bytes]:
        """Take one order, and answer it; return its process."""
        child = child or self.start()
        received = self.fork_server.receive(1.0)
        assert received is not None
        os.close(received[2])
        process = self.process()
        assert self.announce(process, int(received[1].split()[0]))
        self.turn(lambda: child.pid)
        assert child.pid == process.pid
        return process

    def announce(self, process: subprocess.Popen[bytes], number: int = 1) -> bool:
        pidfd = os.pidfd_open(process.pid)
        try:
            return self.fork_server.send(FORKED, f"{number} {process.pid}", pidfd)
        finally:
            os.close(pidfd)
