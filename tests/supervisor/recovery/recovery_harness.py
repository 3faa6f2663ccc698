"""A supervisor that takes over, in this process. Its peers are the test's sockets, and their processes only sleep."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import zmq

from protocol import VERSION
from protocol.config.settings import Settings
from protocol.messages.caller import Caller
from protocol.messages.engines import EngineReady
from protocol.messages.peers import Hello
from protocol.messages.recovery import AttemptSnapshot, WorkerSnapshot
from protocol.messages.work import SubmitRequest
from protocol.models.recipes import ModelSpec
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire import endpoints, envelope
from protocol.wire.endpoints import RuntimeDirectory
from protocol.worker_states import WorkerState
from supervisor.lifecycle.supervisor import Supervisor
from supervisor.processes.keeper_children import KeeperChild

MODEL = "SmolLM2-135M-Instruct-GGUF"
SPEC = ModelSpec(MODEL, "checkpoint", "llamacpp", "cpu", "llm", "/models/m.gguf")
DEADLINE = 10.0


def ready(*attempts: AttemptSnapshot, slots: int = 1) -> WorkerSnapshot:
    facts = EngineReady(slots, 4096, 1, "http://127.0.0.1:1", 0.1)
    return WorkerSnapshot(WorkerState.READY, SPEC, facts, list(attempts), last_use=60.0)


class PeerStandIn:
    """One peer's connection."""

    def __init__(self, runtime: Path, boot: str, role: str, name: str, pid: int) -> None:
        self._runtime, self._boot, self._role, self._name, self._pid = runtime, boot, role, name, pid
        self.endpoint = f"ipc://{runtime}/{name}" if role == "worker" else ""
        """Where it publishes its events: only it decides that."""
        self._context = zmq.Context()
        self._dealer = self._connect()
        self.received: list[Any] = []

    def _connect(self) -> zmq.Socket[bytes]:
        dealer = self._context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.IDENTITY, self._name.encode())
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.connect(endpoints.bus(self._runtime))
        return dealer

    def hello(self, snapshot: object = None, version: int = VERSION) -> None:
        payload = b"" if snapshot is None else envelope.pack_payload(snapshot)
        self.send(Hello(self._role, self._name, self._pid, self._boot, version, endpoint=self.endpoint), payload)

    def reconnect(self) -> None:
        self._dealer.close()
        self._dealer = self._connect()

    def send(self, message: msgspec.Struct, payload: bytes = b"") -> None:
        self._dealer.send(envelope.encode(message, payload))

    def read(self) -> list[Any]:
        """Everything that has arrived so far."""
        while self._dealer.poll(0):
            self.received.append(envelope.decode(self._dealer.recv())[0])
        return self.received

    def got(self, kind: type) -> list[Any]:
        return [message for message in self.read() if type(message) is kind]

    def close(self) -> None:
        self._context.destroy(0)


class TakingOver:
    """The supervisor, and what it finds."""

    def __init__(self, folder: Path) -> None:
        self.runtime = RuntimeDirectory(folder / "r")
        self.boot = os.urandom(6).hex()
        self.passed = 0.0
        """Seconds that this process was stopped."""
        self.loop = Loop(lambda: time.monotonic() + self.passed)
        settings = Settings(state_dir=str(folder), cache_dir=str(folder), runtime_dir=str(self.runtime.path))
        context = ProcessContext(self.runtime.path, self.boot, os.getpid())
        self.supervisor = Supervisor(settings, context, self.loop, -1)
        self.components = self.supervisor.components
        self.components.gateway.start = lambda: None  # type: ignore[method-assign]
        self.components.workers.start = lambda _worker, _node: None  # type: ignore[method-assign]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._peers: list[PeerStandIn] = []
        self._survivors: list[KeeperChild] = []

    def survivor(
        self, role: str, name: str = "", *, connected: bool = True, fingerprint: str | None = None
    ) -> PeerStandIn:
        """A worker or a job. ``connected``: it had said Hello to the supervisor before."""
        process = subprocess.Popen(["sleep", "600"], start_new_session=True)
        self._processes.append(process)
        if fingerprint is None:
            fingerprint = self.components.workers._fingerprint
        pidfd = os.pidfd_open(process.pid)
        self._survivors.append(KeeperChild(process.pid, role, name, pidfd, fingerprint, welcomed=connected))
        return self.peer(role, name, process.pid)

    def gateway(self, name: str) -> PeerStandIn:
        """A gateway, with a master of its own."""
        heartbeat, beat = os.pipe()
        master = subprocess.Popen(
            ["sh", "-c", "sleep 600 & echo $!; wait"],
            start_new_session=True,
            stdout=subprocess.PIPE,
            pass_fds=[beat],
        )
        os.close(heartbeat)
        os.close(beat)
        self._processes.append(master)
        assert master.stdout is not None
        with master.stdout as words:
            pid = int(words.readline())
        fingerprint = self.components.gateway._fingerprint
        pidfd = os.pidfd_open(master.pid)
        self._survivors.append(KeeperChild(master.pid, "gateway", "", pidfd, fingerprint, heartbeat_fd=beat))
        return self.peer("gateway", name, pid)

    def peer(self, role: str, name: str, pid: int) -> PeerStandIn:
        made = PeerStandIn(self.runtime.path, self.boot, role, name, pid)
        self._peers.append(made)
        return made

    def begin(self) -> None:
        self.supervisor.take_over(self._survivors)
        self.supervisor.open()

    @property
    def over(self) -> bool:
        return self.components.messages.transition is None

    def run_until(self, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not done():
            assert time.monotonic() < deadline
            self.loop.run_once(0.02)

    def is_alive(self, number: int) -> bool:
        """Whether a process that survived lives, in the order in which they were made."""
        return self._processes[number].poll() is None

    def close(self) -> None:
        for peer in self._peers:
            peer.close()
        self.components.scheduler.close()
        for process in self._processes:
            os.killpg(process.pid, 9) if process.poll() is None else None
            process.wait()
        self.components.state_writer.close()
        self.components.bus.close()
        self.loop.close()
        self.runtime.release()


def submit(
    number: int, age: float | None, attempt: int = 1, *, caller: Caller | None = None, reservation: int = 0
) -> SubmitRequest:
    return SubmitRequest(
        number,
        attempt,
        MODEL,
        "chat/completions",
        f"r.{number}",
        age=age,
        caller=caller,
        reservation=reservation,
    )
