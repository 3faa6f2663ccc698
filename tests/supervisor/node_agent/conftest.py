"""An agent under test, and its supervisor, which is the test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import pytest

from protocol.config.settings import Settings
from protocol.messages.nodes import AgentSnapshot, ConfigureNode, StartProcess
from protocol.messages.peers import Hello, Welcome
from protocol.runtime.loop import Loop
from protocol.wire import curve, envelope
from protocol.wire.bus_address import BusAddress, ClusterMembership
from protocol.wire.peer_proof import proof_for
from supervisor.bus.sockets import SupervisorBus
from tests.support.node_agents import NodeUnderTest
from tests.support.ports import free_port_pair
from tests.support.waiting import wait_for

KEYS = curve.new_cluster_keys()
BOOT = "b00t"
JOB = "workers.jobs.pull"
"""A process that waits for its order."""
M = TypeVar("M")


def proof_of(name: str) -> dict[str, str]:
    """Return the variables with which a process proves its id."""
    return {"LEMONBUS_PROOF": proof_for(KEYS, BOOT, name)}


class AgentMessage(NamedTuple):
    peer: str
    message: Any
    payload: bytes


class AgentsSupervisor:
    """The supervisor of an agent: welcomes every agent, unless a test does not let it."""

    def __init__(self, folder: Path) -> None:
        self.loop = Loop()
        self.received: list[AgentMessage] = []
        self.welcomes = True
        self.grace = 60.0
        self.settings = Settings(api_key="cl1ent-key", state_dir="/head/state", peer_silence=60.0)
        self.membership = ClusterMembership(f"127.0.0.1:{free_port_pair()}", KEYS.of_member())
        self._address = BusAddress(folder, self.membership)
        self.bus: SupervisorBus | None = None
        self.listen()

    def listen(self) -> None:
        """Be another supervisor from now on."""
        self.bus = SupervisorBus(self.loop, self._address, BOOT, KEYS)
        self.bus.listen(self._take, lambda _: None, lambda _: None, lambda *_: None)

    def stop(self) -> None:
        """The supervisor ends."""
        if self.bus is not None:
            self.bus.close()
            self.bus = None

    def _take(self, peer: str, message: Any, payload: bytes) -> None:
        self.received.append(AgentMessage(peer, message, payload))
        if isinstance(message, Hello) and message.role == "agent" and self.welcomes:
            self.send(peer, Welcome(BOOT, os.getpid()))
            self.send(peer, ConfigureNode(self.grace), msgspec.json.encode(self.settings))

    def send(self, peer: str, message: msgspec.Struct, payload: bytes = b"") -> None:
        assert self.bus is not None
        self.bus.send(peer, message, payload)

    def until(self, condition: Callable[[], M | None], what: str) -> M:
        def look() -> M | None:
            self.loop.run_once(0.02)
            return condition()

        return wait_for(look, what, 30.0)

    def next(self, kind: type[M], wanted: Callable[[M], bool] = lambda _: True) -> M:
        """Wait for a message of a type, and forget everything before it."""

        def found() -> int:
            kinds = (isinstance(each.message, kind) and wanted(each.message) for each in self.received)
            return next((number for number, each in enumerate(kinds, 1) if each), 0)

        number = self.until(found, kind.__name__)
        last: M = self.received[number - 1].message
        self.last_payload = self.received[number - 1].payload
        del self.received[:number]
        return last

    def hello(self) -> tuple[str, AgentSnapshot]:
        """Wait for the Hello of an agent; return its id and its snapshot."""
        message = self.next(Hello, lambda hello: hello.role == "agent")
        return message.id, envelope.unpack_payload(self.last_payload, AgentSnapshot)

    def start(self, agent: str, name: str, module: str = JOB) -> None:
        """Let a job start, and say Hello."""
        self.send(agent, StartProcess(name, "job", module, {"LEMONBUS_FINGERPRINT": "f", **proof_of(name)}))
        self.next(Hello, lambda hello: hello.id == name)

    def start_worker(self, agent: str, name: str) -> None:
        """Let a worker start, and say Hello."""
        self.send(agent, StartProcess(name, "worker", "workers", proof_of(name)))
        self.next(Hello, lambda hello: hello.id == name)
        self.send(name, Welcome(BOOT, os.getpid()))

    def close(self) -> None:
        self.stop()
        self.loop.close()


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[AgentsSupervisor]:
    made = AgentsSupervisor(tmp_path)
    yield made
    made.close()


@pytest.fixture
def node(supervisor: AgentsSupervisor) -> Iterator[NodeUnderTest]:
    labels, resources = {"zone": "west"}, {"npu": 1.0}
    with NodeUnderTest("gpu2", supervisor.membership, BOOT, labels=labels, resources=resources) as made:
        yield made
