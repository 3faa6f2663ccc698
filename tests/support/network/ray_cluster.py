"""Ray clusters on the nodes of a test network. Each node has a home, a cache and a folder of temporary files of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Self

from tests.support import processes
from tests.support.models.tiny_models import tiny_models
from tests.support.network.nodes import Network, NetworkNode
from tests.support.waiting import wait_for

RAY: Final = Path(sys.executable).parent / "ray"
PORT: Final = 6379
START_S: Final = 60.0
"""Ray needs two to four seconds on a quiet machine."""
END_S: Final = 30.0
_WITH_DISK: Final = ("unshare", "--mount", "--propagation", "private", "--")
"""A mount is seen by this node alone, and ends with its last process."""
_WITH_FOLDERS: Final = """
if [ "$1" != 0 ]; then
    mount -t tmpfs -o size="$1" tmpfs "$0"
    mount -t tmpfs tmpfs "$2"
fi
mkdir -p -m 700 "$0/home" "$0/cache" "$0/run"
shift 2
exec "$@"
"""
_BLOCK: Final = bytes(1 << 16)
_OBJECT_STORE_BYTES: Final = 80_000_000
"""The least that Ray accepts. We put nothing there."""


class RayOnNode:
    """Ray on one node."""

    def __init__(
        self,
        network_node: NetworkNode,
        folder: Path,
        head: str,
        environment: dict[str, str],
        resources: dict[str, float],
        disk: int = 0,
    ) -> None:
        """Start it. ``head``: the address of the cluster's head; empty: this is the head. ``resources``: custom ones.

        ``disk``: bytes of the disk that has everything of ours there, but nothing of Ray; such a node does not see the models
        of the head. 0: the usual disk.
        """
        self.network_node, self.folder, self._environment = network_node, folder, environment
        self._own = folder / "own"
        self._own.mkdir(parents=True, exist_ok=True)
        self._output = folder / "ray.log"
        words = [
            *(_WITH_DISK if disk else ()),
            *("sh", "-ec", _WITH_FOLDERS, str(self._own), str(disk), str(tiny_models())),
            *(str(RAY), "start", "--block", "--node-ip-address", network_node.address, "--temp-dir", str(folder / "t")),
            *("--num-cpus", "1", "--num-gpus", "0", "--object-store-memory", str(_OBJECT_STORE_BYTES)),
            *("--disable-usage-stats", "--resources", _json(resources)),
            *(
                ("--address", f"{head}:{PORT}")
                if head
                else ("--head", "--port", str(PORT), "--include-dashboard=false")
            ),
        ]
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                network_node.command(*words), env=self.environment(), stdout=output, stderr=subprocess.STDOUT, cwd="/"
            )

    def environment(self) -> dict[str, str]:
        """Return the variables of everything on this node."""
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("LEMON", "RAY", "PYTEST"))
        }
        return inherited | {
            "HOME": str(self._own / "home"),
            "XDG_CACHE_HOME": str(self._own / "cache"),
            "XDG_RUNTIME_DIR": str(self._own / "run"),
            **self._environment,
        }

    @property
    def disk(self) -> Path:
        """The folder of what is ours there, as seen from outside."""
        return Path(f"/proc/{self.process.pid}/root{self._own}")

    @contextlib.contextmanager
    def full_disk(self) -> Iterator[None]:
        """Leave no byte free on :attr:`disk` during the block."""
        filler = self.disk / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(_BLOCK)
        try:
            yield
        finally:
            filler.unlink()

    def wait_ready(self) -> None:
        """Wait until `ray start` says that the node runs."""
        wait_for(self._is_ready, f"Ray runs on node {self.network_node.number}: {self.output()[-2000:]}", START_S)

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.output()[-4000:]
        return "Ray runtime started" in self.output()

    def output(self) -> str:
        """Return what `ray start` has printed."""
        return self._output.read_text(errors="replace")

    def pid_of(self, program: str) -> int:
        """Return the pid of one of Ray's programs there: ``raylet`` or ``gcs_server``."""
        (found,) = [
            each.pid for each in self.network_node.processes() if each.words and Path(each.words[0]).name == program
        ]
        return found

    def stop(self) -> None:
        """End it in an orderly way, if it has not ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(END_S)
        self._sweep()

    def wait_end(self) -> None:
        """Wait until `ray start` has ended: it does when a process of Ray was killed, and ends the others."""
        self.process.wait(END_S)
        self._sweep()

    def _sweep(self) -> None:
        """Kill what Ray itself leaves behind when its raylet was killed."""
        for each in self.network_node.processes():
            if each.words[0] in ("ray::DashboardAgent", "ray::RuntimeEnvAgent"):
                with contextlib.suppress(ProcessLookupError):
                    processes.kill(each.pid)


class RayCluster:
    """A cluster on all nodes of a network, as a context manager; the head is on the first node."""

    def __init__(
        self,
        network: Network,
        patience: int = 60,
        disk: int = 0,
        environment: Mapping[str, str] | None = None,
        **resources: float,
    ) -> None:
        """``patience``: seconds until Ray's processes end if the head is away. The rest is for each node but the first:

        ``disk``: see :class:`RayOnNode`; ``environment``: more variables; ``resources``: custom ones.
        """
        self.network, self._resources, self._disk = network, resources, disk
        self._environment_there = environment or {}
        self._environment = {
            "RAY_gcs_rpc_server_reconnect_timeout_s": str(patience),
            # By default, Ray counts a node as dead that was cut off for half a minute, and ends there once it is back.
            "RAY_health_check_failure_threshold": "60",
        }
        self.folder: Final = Path(tempfile.mkdtemp(prefix="lbr-", dir="/tmp"))  # Ray's sockets need a short path
        self.nodes: list[RayOnNode] = []

    @property
    def address(self) -> str:
        """``HOST:PORT`` of its head."""
        return f"{self.network.nodes[0].address}:{PORT}"

    @property
    def others(self) -> list[RayOnNode]:
        """All but the head."""
        return self.nodes[1:]

    def start_head(self) -> RayOnNode:
        """Start Ray on the first node."""
        node = self.network.nodes[0]
        return RayOnNode(node, self.folder / str(node.number), "", self._environment, {})

    def start_node(self, node: NetworkNode) -> RayOnNode:
        """Start Ray on another node."""
        folder, head = self.folder / str(node.number), self.network.nodes[0].address
        environment = {**self._environment, **self._environment_there}
        return RayOnNode(node, folder, head, environment, self._resources, self._disk)

    def restart(self, node: RayOnNode) -> None:
        """Start Ray again on a node where it has ended, and wait until it runs."""
        number = self.nodes.index(node)
        self.nodes[number] = self.start_node(node.network_node) if number else self.start_head()
        self.nodes[number].wait_ready()

    def __enter__(self) -> Self:
        try:
            self.nodes.append(self.start_head())
            self.nodes[0].wait_ready()
            self.nodes += [self.start_node(node) for node in self.network.others]
            for node in self.others:
                node.wait_ready()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for node in reversed(self.nodes):
            node.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def _json(resources: dict[str, float]) -> str:
    return "{" + ", ".join(f'"{name}": {amount}' for name, amount in resources.items()) + "}"


def agents(node: NetworkNode) -> list[processes.ProcessInfo]:
    """Return our agents on a node.

    What an agent starts has the agent's command line until its own program begins.
    """
    found = {each.pid: each for each in node.processes() if each.runs("supervisor.node_agent")}
    return [each for each in found.values() if each.parent not in found]


def has_actor(node: NetworkNode) -> bool:
    """Return whether an actor of ours is there, with an agent or without one."""
    return any(each.mentions("AgentActor") for each in node.processes())
