"""Other nodes of a server under test: real node agents, on this machine, each with directories of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from protocol.config.agent_settings import AGENT_FILE_VARIABLE, AgentSettings, write_agent_settings
from protocol.wire.bus_address import ClusterMembership, read_bus_address
from tests.support import processes
from tests.support.log_file import LogFile
from tests.support.processes import ProcessInfo
from tests.support.server import ROOT, LemonbusServer
from tests.support.waiting import wait_for

END: Final = 20.0
"""Seconds until an agent must have ended that was told to; on a quiet machine it takes a tenth of a second."""


def membership(server: LemonbusServer) -> ClusterMembership:
    """Return what processes of other nodes need to reach a server."""
    found = read_bus_address(server.runtime, remote=True).cluster
    assert found is not None, "the server has no cluster_address"
    return found


def boot(server: LemonbusServer) -> str:
    """Return the id of the server's run."""
    return str(next(line["boot"] for line in server.lines if line["event"] == "starting"))


class NodeUnderTest:
    """One node. Use it as a context manager: leaving it ends the agent, and checks that nothing is left."""

    def __init__(
        self, name: str, found: ClusterMembership, boot_id: str, prefix: tuple[str, ...] = (), **settings: Any
    ) -> None:
        """Start its agent. ``prefix``: words before the command, such as those that enter a network namespace."""
        self.name, self._prefix = name, prefix
        self.home = Path(tempfile.mkdtemp(prefix=f"lb-{name}-", dir="/tmp"))
        self.runtime = self.home / "r"
        folders = {
            "runtime_dir": str(self.runtime),
            "cache_dir": str(self.home / "cache"),
            "state_dir": str(self.home / "state"),
        }
        agent = AgentSettings(node=name, boot=boot_id, membership=found, **{**folders, **settings})
        write_agent_settings(agent, self.file)
        self._log = LogFile(self.home / "log")
        self.process = self._spawn()

    @property
    def file(self) -> Path:
        """The settings of the agent."""
        return self.home / "agent.json"

    def _spawn(self) -> subprocess.Popen[bytes]:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("LEMON")}
        environment |= {AGENT_FILE_VARIABLE: str(self.file), "SERVER_UNDER_TEST": str(self.runtime)}
        return subprocess.Popen(
            [*self._prefix, sys.executable, "-m", "supervisor.node_agent"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log.stderr,
        )

    def start_again(self) -> None:
        """Start another agent of this node; the last one has ended."""
        assert self.process.poll() is not None
        self.process = self._spawn()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The log of the agent and its processes."""
        return self._log.lines

    @property
    def printed(self) -> list[str]:
        """What they wrote besides the log."""
        return self._log.strays

    @property
    def pid(self) -> int:
        """The agent."""
        return self.process.pid

    def logged(self, event: str) -> int:
        """How often an event is in the log of the node."""
        return sum(line["event"] == event for line in self.lines)

    def process_tree(self) -> list[ProcessInfo]:
        """Every living process of this node, the agent included."""
        return processes.of_server(self.runtime)

    def workers(self) -> list[ProcessInfo]:
        return [each for each in self.process_tree() if each.runs("workers")]

    def engines(self) -> list[ProcessInfo]:
        """What the workers have started."""
        pids = {worker.pid for worker in self.workers()}
        return [each for each in self.process_tree() if each.parent in pids]

    def wait_end(self, deadline: float = END) -> int:
        """Wait for the agent's end; return its exit status."""
        return self.process.wait(deadline)

    def assert_nothing_left(self, deadline: float = 15.0) -> None:
        what = f"no process of node {self.name} is left"
        wait_for(lambda: not self.process_tree(), f"{what}: {self.process_tree()}", deadline)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self.process.poll() is None:
                # The first signal drains the node, the second one ends it at once. Two of the same kind may count as one.
                for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGINT):
                    self.process.send_signal(number)
                assert self.wait_end() == 0, self.printed
            if kind is None:
                self.assert_nothing_left()
        finally:
            self.process.kill()
            self.process.wait()
            for left in self.process_tree():
                with contextlib.suppress(ProcessLookupError):
                    processes.kill(left.pid)
            self._log.close()
            shutil.rmtree(self.home, ignore_errors=True)


def node_of(server: LemonbusServer, name: str, prefix: tuple[str, ...] = (), **settings: Any) -> NodeUnderTest:
    """Start a node of this server."""
    return NodeUnderTest(name, membership(server), boot(server), prefix, **settings)


def wait_joined(server: LemonbusServer, node: NodeUnderTest) -> None:
    """Wait until the server has the node, and a worker runs there."""
    wait_for(partial(joined, server, node.name), f"{node.name} has joined: {node.printed} {node.lines[-3:]}", 60.0)
    wait_for(node.workers, f"a worker runs on {node.name}", 60.0)


def node_states(server: LemonbusServer) -> dict[str, str]:
    """Return node → state, as the server shows it; empty while it has only its head."""
    return {each["name"]: each["state"] for each in server.state().get("nodes", [])}


def joined(server: LemonbusServer, name: str) -> bool:
    """Return whether a node is ready."""
    return node_states(server).get(name) == "ready"
