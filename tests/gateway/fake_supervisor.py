"""A fake supervisor that a test controls, with the real protocol over real sockets."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import zmq

import protocol.messages
import protocol.models
from protocol.config import settings
from protocol.failures import Failure
from protocol.messages import metrics, peers, recovery, work
from protocol.messages.calls import AbandonCall, CallResult
from protocol.messages.events import Event
from protocol.messages.readiness import ServerReadiness
from protocol.runtime.loop import Loop
from protocol.wire import endpoints, envelope, frames
from protocol.wire.bus_connection import find_supervisor
from tests.gateway.fake_worker import DEADLINE, FakeWorker, ReceivedRequest

# A message can be decoded once its module is imported, whatever tests have run before.
for _package in (protocol.messages, protocol.models):
    for _module in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}."):
        importlib.import_module(_module.name)

_STANDING_IN = ("sleep", "600")


class SupervisorHarness:
    """It runs in one thread; :meth:`do` runs a function there. ``changes``: settings that are not the defaults."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.runtime = folder
        self.boot = os.urandom(6).hex()
        self.directory = endpoints.RuntimeDirectory(folder)
        self.settings = msgspec.structs.replace(
            settings.Settings(gateway_workers=1, runtime_dir=str(folder)), **changes
        )
        settings.write_settings(self.settings, folder)
        self.context = zmq.Context()
        self.bus = self._bound_bus()
        self.logs = self.context.socket(zmq.PULL)
        self.logs.linger = 0
        self.logs.bind(endpoints.logs(folder, self.boot))
        self.workers: dict[str, FakeWorker] = {}
        self.gateways: list[peers.Hello] = []
        self.received: queue.Queue[ReceivedRequest] = queue.Queue()
        self.cancelled: queue.Queue[work.Cancel] = queue.Queue()
        self.others: queue.Queue[tuple[str, Any]] = queue.Queue()
        self.observed: list[metrics.RequestsObserved] = []
        """Reports of requests that have ended."""
        self.snapshots: queue.Queue[recovery.GatewaySnapshot] = queue.Queue()
        """What came with each Hello."""
        self.lines: list[dict[str, Any]] = []
        self.reserved: list[work.ReserveRequest] = []
        self.reservation_failure: Failure | None = None
        """The failure with which reservations are refused."""
        self.welcoming = True
        self.readiness = ServerReadiness(ready=True, drained=False)
        """What a gateway is told before its Welcome."""
        self.on_request: Callable[[ReceivedRequest], None] = self.received.put
        self.keeper = subprocess.Popen(_STANDING_IN)
        self.supervisor = subprocess.Popen(_STANDING_IN)
        """Processes that the gateway watches."""
        self._loop = Loop()
        self._jobs: queue.Queue[Callable[[], None]] = queue.Queue()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK)
        self._number = self._loop.on_socket(self.bus, self._control_message)
        self._loop.on_socket(self.logs, self._line)
        self._loop.on_readable(self._wake_read, self._woken)
        self._thread = threading.Thread(target=self._loop.run, daemon=True)
        self._thread.start()
        self.add_worker("w1")

    def _bound_bus(self) -> zmq.Socket[bytes]:
        bus = self.context.socket(zmq.ROUTER)
        bus.linger = 0
        bus.setsockopt(zmq.ROUTER_HANDOVER, 1)
        bus.bind(endpoints.bus(self.runtime))
        return bus

    # In the thread

    def _control_message(self) -> None:
        received = next(frames.receive_routed(self.bus), None)
        if received is None:
            return
        peer, frame = received
        message, payload = envelope.decode(frame)
        gateway = peer.decode()
        match message:
            case peers.Hello():
                self.gateways.append(message)
                self.snapshots.put(envelope.unpack_payload(payload, recovery.GatewaySnapshot))
                if self.welcoming:
                    self.send(gateway, self.readiness)
                    self.send(gateway, peers.Welcome(self.boot, self.supervisor.pid))
                    for worker in self.workers.values():
                        self.send(gateway, peers.WorkerUp(worker.name, worker.endpoint))
            case work.SubmitRequest():
                self.on_request(ReceivedRequest(gateway, message, payload))
            case work.ReserveRequest():
                self.reserved.append(message)
                refused = self.reservation_failure
                answer = CallResult(message.number) if refused is None else work.Refused(message.number, 0, refused)
                self.send(gateway, answer, envelope.pack_payload(None) if refused is None else b"")
            case work.Cancel():
                self.cancelled.put(message)
            case metrics.RequestsObserved():
                self.observed.append(message)
            case _:
                self.others.put((gateway, message))

    def _line(self) -> None:
        for records in frames.receive_each(self.logs):
            self.lines += [msgspec.json.decode(record) for record in records.split(b"\n")]

    def _woken(self) -> None:
        os.read(self._wake_read, 512)
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return
            job()

    def send(self, gateway: str, message: msgspec.Struct, payload: bytes = b"") -> None:
        assert threading.current_thread() is self._thread, "sockets belong to one thread: use do()"
        self._loop.used(self._number)
        self.bus.send_multipart([gateway.encode(), envelope.encode(message, payload)])

    def grant(self, received: ReceivedRequest, worker: str = "w1", model: str = "tiny") -> None:
        self.send(
            received.gateway,
            work.Granted([work.GrantedAttempt(received.message.number, received.message.attempt, worker, model)]),
        )

    def publish(self, received: ReceivedRequest, batch: list[Event], worker: str = "w1") -> None:
        self.workers[worker].publish(received.gateway, batch)

    # From the test

    def do(self, job: Callable[[], Any]) -> Any:
        """Run ``job`` in the fake supervisor's thread; return or raise what it does."""
        outcome: queue.Queue[tuple[bool, Any]] = queue.Queue()

        def run() -> None:
            try:
                outcome.put((True, job()))
            except BaseException as problem:  # noqa: BLE001 - handed to the test
                outcome.put((False, problem))

        self._jobs.put(run)
        os.write(self._wake_write, b"!")
        good, value = outcome.get(timeout=2 * DEADLINE)
        if not good:
            raise value
        return value

    def add_worker(self, name: str) -> None:
        def add() -> None:
            worker = self.workers[name] = FakeWorker(self.context, self.runtime, self.boot, name)
            for hello in self.gateways:
                self.send(hello.id, peers.WorkerUp(name, worker.endpoint))

        self.do(add)

    def kill_worker(self, name: str, failure: Failure) -> None:
        def kill() -> None:
            worker = self.workers.pop(name)
            worker.close()
            for hello in self.gateways:
                self.send(hello.id, peers.WorkerGone(name, failure))

        self.do(kill)

    def end_supervisor(self) -> None:
        """Kill the supervisor: its process and its socket end, and messages that wait in the socket are lost."""

        def end() -> None:
            self._loop.on_socket(self.bus, None)
            self.bus.close()

        self.do(end)
        # ZeroMQ closes it a moment later. Until then the gateway would find this process, which stays alive, and wait for it.
        wait_for(lambda: not find_supervisor(self.runtime))
        self.supervisor.kill()
        self.supervisor.wait(DEADLINE)
        self.forget()

    def forget(self) -> None:
        """Drop what has arrived so far."""
        self.lines.clear()
        for arrived in (self.received, self.cancelled, self.others, self.snapshots):
            with contextlib.suppress(queue.Empty):
                while True:
                    arrived.get_nowait()

    def start_supervisor(self) -> None:
        """Start the supervisor's successor."""
        self.supervisor = subprocess.Popen(_STANDING_IN)

        def start() -> None:
            self.bus = self._bound_bus()
            self._number = self._loop.on_socket(self.bus, self._control_message)

        self.do(start)

    def replace_supervisor(self) -> recovery.GatewaySnapshot:
        """Kill the supervisor and start another one; return the gateway's Hello to it."""
        self.end_supervisor()
        self.start_supervisor()
        return self.snapshots.get(timeout=DEADLINE)

    def end_keeper(self) -> None:
        """Kill the keeper, and with it the server."""
        self.keeper.kill()
        self.keeper.wait(DEADLINE)

    def next_request(self) -> ReceivedRequest:
        return self.received.get(timeout=DEADLINE)

    def cancel_of(self, received: ReceivedRequest) -> work.Cancel:
        """Return the Cancel of a request; those of an earlier test may still arrive."""
        while (cancel := self.cancelled.get(timeout=DEADLINE)).number != received.message.number:
            pass
        return cancel

    def called(self, kind: type) -> tuple[str, Any]:
        """Return the next call of this kind, and the gateway that made it."""
        while True:
            gateway, message = self.others.get(timeout=DEADLINE)
            if isinstance(message, kind):
                return gateway, message

    def forgotten(self, number: int) -> None:
        """Wait until a call is forgotten; calls of an earlier test may still exist."""
        while self.called(AbandonCall)[1].number != number:
            pass

    def ping(self) -> peers.Pong:
        """Return the gateway's answer to a ping: it has handled all earlier messages of this supervisor."""
        self.do(lambda: self.send(self.gateways[-1].id, peers.Ping(1)))
        pong: peers.Pong = self.called(peers.Pong)[1]
        return pong

    def internal_errors(self) -> int:
        """Return how many exceptions of its own code the gateway reports when it is pinged."""
        return self.ping().errors

    def end_processes(self) -> None:
        """Kill supervisor and keeper."""
        for process in (self.supervisor, self.keeper):
            process.kill()
            process.wait(DEADLINE)

    def close(self) -> None:
        """Stop the thread, and release all."""
        self.end_processes()
        self.do(self._loop.stop)
        self._thread.join(DEADLINE)
        self._loop.close()
        for worker in self.workers.values():
            worker.close()
        self.bus.close()
        self.logs.close()
        self.context.term()
        os.close(self._wake_read)
        os.close(self._wake_write)
        self.directory.release()


def wait_for(condition: Callable[[], Any], seconds: float = DEADLINE) -> Any:
    """Return what ``condition`` gives once it is true; fails after the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(ConnectionError):
            value = condition()
            if value:
                return value
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
