"""A real worker process; the test acts as its supervisor and one gateway over real ZeroMQ."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import zmq
from msgspec import structs

from protocol import ids
from protocol.config import settings as configuration
from protocol.failures import Failure
from protocol.messages.engines import EngineReady, StartEngine
from protocol.messages.events import Event, EventKind, failure_of, outcome_of, unpack_batch
from protocol.messages.peers import Hello, Shutdown, Welcome
from protocol.messages.recovery import WorkerSnapshot
from protocol.messages.work import AttemptsEnded, Cancel, Run
from protocol.models.recipes import ModelSpec
from protocol.runtime.process_context import ProcessContext
from protocol.wire import endpoints, envelope
from tests.support.fakes.supervisor import SupervisorStandIn
from tests.support.waiting import DEADLINE

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0}
ENDLESS = {**CHAT, "max_tokens": 100_000}


@dataclass
class ReceivedEvents:
    """The events of one attempt that the gateway received."""

    events: list[Event] = field(default_factory=list)

    @property
    def data(self) -> bytes:
        return b"".join(event.data for event in self.events if event.kind == EventKind.DELTA)

    @property
    def text(self) -> str:
        """The text of a streamed chat."""
        chunks = [json.loads(event[6:]) for event in self.data.split(b"\n\n") if event]
        return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])

    @property
    def end(self) -> Event | None:
        return self.events[-1] if self.events and self.events[-1].kind in (EventKind.DONE, EventKind.FAILED) else None

    @property
    def failure(self) -> Failure:
        assert self.end is not None
        assert self.end.kind == EventKind.FAILED
        return failure_of(self.end)

    @property
    def done(self) -> Any:
        assert self.end is not None
        assert self.end.kind == EventKind.DONE, failure_of(self.end)
        return outcome_of(self.end)


class WorkerProcess:
    """One worker, and the sockets of its supervisor and of one gateway."""

    def __init__(self, home: Path, keeper_pid: int, *, mortal: bool = False, **settings: Any) -> None:
        """``mortal``: the supervisor can die, and has a pid of its own."""
        self.runtime = endpoints.RuntimeDirectory(home / "rt")
        self.boot = os.urandom(6).hex()
        # The gateway is this process, which may stand still before its subscription has arrived.
        usual: dict[str, Any] = {
            "threads": 1,
            "log_format": "json",
            "log_level": "warning",
            "subscribe_timeout": 2 * DEADLINE,
        }
        configuration.write_settings(
            configuration.Settings(
                runtime_dir=str(self.runtime.path), cache_dir=str(home / "cache"), **{**usual, **settings}
            ),
            self.runtime.path,
        )
        self.context = zmq.Context()
        self.supervisor = SupervisorStandIn(self.runtime.path, mortal=mortal)
        self.name = ids.peer_id("worker")
        self.gateway = ids.peer_id("gateway")
        self.process_context = ProcessContext(self.runtime.path, self.boot, keeper_pid)
        self.messages: list[Any] = []
        self.snapshot = WorkerSnapshot()
        """What came with the last Hello."""
        self.received: dict[int, ReceivedEvents] = {}
        self.ready = EngineReady(0, 0, 0, "", 0.0)
        self.endpoint = ""
        """The address at which it says that it publishes its events."""
        self.sub: zmq.Socket[bytes] | None = None
        self.process = subprocess.Popen(
            [sys.executable, "-m", "workers"],
            cwd=ROOT,
            env={
                **os.environ,
                **self.process_context.environment(),
                "LEMONBUS_PEER": self.name,
                "PYTHONPATH": str(ROOT),
            },
            start_new_session=True,
        )

    def receive(self, seconds: float = 0.02) -> None:
        """Receive what arrives within ``seconds``."""
        poller = zmq.Poller()
        router = self.supervisor.router
        sockets = [one for one in (router, self.sub) if one is not None and not one.closed]
        for one in sockets:
            poller.register(one, zmq.POLLIN)
        for one, _ in poller.poll(int(seconds * 1000)):
            frames = one.recv_multipart()
            if one is router:
                message, payload = envelope.decode(frames[1])
                if isinstance(message, Hello):
                    self.snapshot = envelope.unpack_payload(payload, WorkerSnapshot)
                self.messages += message.ends if isinstance(message, AttemptsEnded) else [message]
                continue
            topic = ids.topic(self.gateway)
            assert frames[0].startswith(topic)
            for event in unpack_batch(frames[0], len(topic))[1]:
                received = self.received.setdefault(event.number, ReceivedEvents())
                assert event.seq == len(received.events), "a gap"
                received.events.append(event)

    def until(self, condition: Callable[[], T | None], what: str, deadline: float = 2 * DEADLINE) -> T:
        """Receive until the condition is true."""
        end = time.monotonic() + deadline
        while True:
            value = condition()
            if value:
                return value
            assert time.monotonic() < end, f"not within {deadline} s: {what}; received: {self.messages[-5:]}"
            self.receive()

    def expect(self, kind: type[T], deadline: float = 2 * DEADLINE) -> T:
        """Return the next message of a kind; discard those before it."""

        def found() -> T | None:
            while self.messages:
                message = self.messages.pop(0)
                if isinstance(message, kind):
                    return message
            return None

        return self.until(found, kind.__name__, deadline)

    def send(self, message: Any, payload: bytes = b"") -> None:
        self.supervisor.send(self.name, message, payload)

    def lose_supervisor(self) -> None:
        """Kill the supervisor."""
        self.supervisor.die()
        self.messages.clear()

    def get_supervisor(self, *, welcome: bool = True) -> WorkerSnapshot:
        """Start the next supervisor; return the worker's Hello to it."""
        self.supervisor = SupervisorStandIn(self.runtime.path, mortal=True)
        self.expect_hello()
        if welcome:
            self.welcome()
        return self.snapshot

    def expect_hello(self) -> None:
        expected = Hello("worker", self.name, self.process.pid, self.boot)
        hello = self.expect(Hello)
        self.endpoint = hello.endpoint
        assert endpoints.socket_file(self.endpoint).is_socket()
        assert hello == structs.replace(expected, model=self.snapshot.model_in_use, endpoint=self.endpoint)

    def welcome(self, clock: float = 0.0) -> None:
        self.send(Welcome(self.boot, self.supervisor.pid, clock=clock))

    def replace_supervisor(self) -> WorkerSnapshot:
        """Kill the supervisor and start the next one; return the worker's Hello to it."""
        self.lose_supervisor()
        return self.get_supervisor()

    def load(self, spec: ModelSpec) -> EngineReady:
        self.send(StartEngine(spec))
        self.ready = self.expect(EngineReady, 20)
        return self.ready

    def subscribe(self) -> None:
        self.sub = self.context.socket(zmq.SUB)
        self.sub.setsockopt(zmq.SUBSCRIBE, ids.topic(self.gateway))
        self.sub.connect(self.endpoint)

    def run(self, number: int, endpoint: str, body: Any, *, stream: bool = False, query: str = "") -> None:
        message = Run(self.gateway, number, 1, "asked-for", endpoint, f"req-{number}", stream=stream, query=query)
        self.send(message, json.dumps(body).encode())

    def cancel(self, number: int) -> None:
        self.send(Cancel(self.gateway, number, 1, "cancelled"))

    def ended(self, number: int) -> ReceivedEvents:
        """Return the events of a request once it has ended."""
        received = self.received.setdefault(number, ReceivedEvents())
        self.until(lambda: received.end, f"request {number} ends")
        return received

    def begun(self, number: int) -> ReceivedEvents:
        """Return the events of a request once there is output."""
        received = self.received.setdefault(number, ReceivedEvents())
        self.until(lambda: received.data, f"request {number} begins")
        return received

    def leave(self) -> int:
        self.send(Shutdown(5.0))
        return self.process.wait(2 * DEADLINE)

    def close(self) -> None:
        # As the supervisor does: an engine that was started a moment ago may not be bound to the worker's death yet.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.supervisor.close()
        self.context.destroy(0)
        self.runtime.release()


@contextmanager
def running_worker(
    home: Path, keeper_pid: int | None = None, *, welcome: bool = True, **settings: Any
) -> Iterator[WorkerProcess]:
    one = WorkerProcess(home, keeper_pid or os.getpid(), **settings)
    try:
        one.expect_hello()
        if welcome:
            one.welcome()
        yield one
    finally:
        one.close()
