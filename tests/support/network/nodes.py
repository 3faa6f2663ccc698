"""Networks for tests: the test's own process is on the first node, and starts others wherever it likes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Final, Self

import pytest

from tests.support import processes
from tests.support.network import relay
from tests.support.waiting import wait_for

ROOT: Final = Path(__file__).parents[3]
END_S: Final = 20.0


class NetworkNode:
    """One node."""

    def __init__(self, number: int, holder: int) -> None:
        """``holder``: a process in its namespace, which is there until the end."""
        self.number, self._holder = number, holder
        self.address: Final = relay.address(number)
        self._namespace = relay.namespace(holder)

    def command(self, *words: str | Path) -> list[str]:
        """Return the command line that runs another one on this node."""
        return ["nsenter", f"--net=/proc/{self._holder}/ns/net", "--", *map(str, words)]

    def processes(self) -> list[processes.ProcessInfo]:
        """Return what runs there, without what holds the network."""
        found = map(processes.look, relay.inhabitants({self._namespace}))
        return [each for each in found if each is not None and each.pid != self._holder]

    def kill_all(self) -> None:
        """Kill every process there, as the end of the machine would."""

        def killed() -> bool:
            left = self.processes()
            for each in left:
                with contextlib.suppress(ProcessLookupError):
                    processes.kill(each.pid)
            return not left

        wait_for(killed, f"no process is left on node {self.number}")


class Network:
    """A network of some nodes, as a context manager. Inside, the present thread is on the first node.

    Leaving it checks that nothing else runs on any of them. Where namespaces are not allowed, the test is skipped.
    """

    def __init__(self, nodes: int = 2) -> None:
        """``nodes``: how many, the first one included."""
        self._count = nodes
        self.nodes: list[NetworkNode] = []
        """All of them, in order; the first one is that of this process."""

    @property
    def others(self) -> list[NetworkNode]:
        """All but the first."""
        return self.nodes[1:]

    def link(self, node: NetworkNode, *, up: bool) -> None:
        """Let packets to and from a node through, or none."""
        self._order(f"link {node.number} {'up' if up else 'down'}")

    def worsen(self, *, delay: float = 0.0, loss: float = 0.0) -> None:
        """Delay each packet by some seconds, and lose a share of them."""
        self._order(f"delay {delay}")
        self._order(f"loss {loss}")

    def _order(self, line: str) -> None:
        self._orders.write(f"{line}\n".encode())
        self._orders.flush()
        assert self._answers.readline() == b"ok\n"

    def __enter__(self) -> Self:
        self._former = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            relay.unshare_network()
        except OSError as problem:
            os.close(self._former)
            pytest.skip(f"network namespaces are not allowed here: {problem}")
        self._relay = subprocess.Popen(
            [sys.executable, "-m", "tests.support.network.relay", str(self._count)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._relay.stdin is not None
        assert self._relay.stdout is not None
        self._orders: IO[bytes] = self._relay.stdin
        self._answers: IO[bytes] = self._relay.stdout
        word, *rest = self._answers.readline().decode().split()
        if word != "ready":
            self._leave()
            pytest.skip(f"no network can be made here: {' '.join(rest)}")
        holders = [os.getpid(), *map(int, rest)]
        self.nodes = [NetworkNode(number, pid) for number, pid in enumerate(holders, 1)]
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                wait_for(lambda: not self._left(), "nothing is left on any node", END_S)
        finally:
            self._leave()

    def _left(self) -> list[processes.ProcessInfo]:
        own = (os.getpid(), self._relay.pid)
        return [each for node in self.nodes for each in node.processes() if each.pid not in own]

    def _leave(self) -> None:
        if ctypes.CDLL(None, use_errno=True).setns(self._former, relay.CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "the former network namespace")
        os.close(self._former)
        self._orders.close()
        self._relay.wait(END_S)
        self._answers.close()
