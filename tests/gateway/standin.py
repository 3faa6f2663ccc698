"""A supervisor and a worker that do as a test says, speaking the real protocol over real sockets to a real gateway."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import zmq

from protocol import endpoints, events, frames, ids, settings, staff, wire, work
from protocol.events import Event, Kind, Outcome
from protocol.failures import Failure
from protocol.leases import Offer
from protocol.loop import Loop
from protocol.surroundings import Surroundings

DEADLINE = 10.0
ROOT = Path(__file__).resolve().parents[2]
CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"%d"}}]}\n\n'


class Asked(msgspec.Struct):
    """An ``Ask`` that arrived, and who sent it."""

    gateway: str
    ask: work.Ask
    body: bytes

    def event(self, seq: int, kind: Kind, data: bytes = b"", count: int = 0) -> Event:
        return Event(self.ask.number, self.ask.attempt, seq, kind, count, data)

    def tokens(self, first: int, last: int) -> list[Event]:
        return [self.event(seq, Kind.DELTA, CHUNK % seq, 1) for seq in range(first, last)]

    def done(self, seq: int, **fields: Any) -> Event:
        return self.event(seq, Kind.DONE, wire.pack(Outcome(**fields)))

    def failed(self, seq: int, failure: Failure) -> Event:
        return self.event(seq, Kind.FAILED, wire.pack(failure))


class Straight(NamedTuple):
    """A ``Run`` or a ``Cancel`` that a gateway sent to a worker itself."""

    message: Any
    body: bytes

    @property
    def asked(self) -> Asked:
        """The run, as if it had been asked for."""
        run = self.message
        ask = work.Ask(run.number, run.attempt, run.model, run.endpoint, run.label)
        return Asked(run.gateway, ask, self.body)


class Worker:
    """An XPUB that publishes when told."""

    def __init__(self, house: StandIn, name: str) -> None:
        self.name = name
        self.endpoint = endpoints.events(house.runtime, house.boot, name)
        self.socket = house.context.socket(zmq.XPUB)
        self.socket.linger = 0
        self.socket.sndhwm = 100_000
        self.socket.bind(self.endpoint)
        self.runs = house.context.socket(zmq.PULL)
        self.runs.linger = 0
        self.runs.bind(endpoints.runs(house.runtime, house.boot, name))
        self.topics: set[bytes] = set()

    def lend(self, gateway: str, lease: int, slots: int, first: tuple[int, int] = (0, 0)) -> None:
        """``first``: number and attempt of the request that uses one of the slots."""
        offer = Offer(lease, slots, "tiny", "chat/completions", "registered")
        self.publish(gateway, [Event(*first, 0, Kind.LENT, 0, wire.pack(offer))])

    def end_lease(self, gateway: str, lease: int) -> None:
        self.publish(gateway, [Event(0, 0, 0, Kind.LEASE_OVER, lease)])

    def next_run(self) -> Straight:
        assert self.runs.poll(int(1000 * DEADLINE)), "nothing came the straight way"
        return Straight(*wire.decode(self.runs.recv_multipart()))

    def close(self) -> None:
        self.socket.close()
        self.runs.close()

    def publish(self, gateway: str, batch: list[Event]) -> None:
        topic = ids.topic(gateway)
        deadline = time.monotonic() + DEADLINE
        while topic not in self.topics:
            assert self.socket.poll(int(1000 * max(0, deadline - time.monotonic()))), "the gateway did not subscribe"
            news = self.socket.recv()
            (self.topics.add if news[0] == 1 else self.topics.discard)(news[1:])
        self.socket.send_multipart([topic + self.name.encode(), events.pack_batch(batch)])


class StandIn:
    """The house around one gateway. Everything runs in one thread; :meth:`do` runs a function in it."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.runtime = folder
        self.boot = ids.boot_id()
        self.directory = endpoints.RuntimeDirectory(folder)
        self.settings = msgspec.structs.replace(settings.Settings(gateway_workers=1), **changes)
        settings.store(self.settings, folder)
        self.context = zmq.Context()
        self.bus = self.context.socket(zmq.ROUTER)
        self.bus.linger = 0
        self.bus.bind(endpoints.bus(folder))
        self.logs = self.context.socket(zmq.PULL)
        self.logs.linger = 0
        self.logs.bind(endpoints.logs(folder, self.boot))
        self.workers: dict[str, Worker] = {}
        self.gateways: list[staff.Hello] = []
        self.asked: queue.Queue[Asked] = queue.Queue()
        self.cancelled: queue.Queue[work.Cancel] = queue.Queue()
        self.others: queue.Queue[tuple[str, Any]] = queue.Queue()
        self.lines: list[dict[str, Any]] = []
        self.welcoming = True
        self.on_ask: Callable[[Asked], None] = self.asked.put
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.supervisor = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        self.gateway: subprocess.Popen[bytes] | None = None
        self._loop = Loop()
        self._jobs: queue.Queue[Callable[[], None]] = queue.Queue()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK)
        self._number = self._loop.on_socket(self.bus, self._message)
        self._loop.on_socket(self.logs, self._line)
        self._loop.on_readable(self._wake_read, self._woken)
        self._thread = threading.Thread(target=self._loop.run, daemon=True)
        self._thread.start()
        self.add_worker("w1")

    # In the thread

    def _message(self) -> None:
        received = frames.receive(self.bus)
        if received is None:
            return
        peer, *rest = received
        message, payload = wire.decode(rest)
        gateway = peer.decode()
        match message:
            case staff.Hello():
                self.gateways.append(message)
                if self.welcoming:
                    self.send(gateway, staff.Welcome(self.boot, self.supervisor.pid))
                    for worker in self.workers.values():
                        self.send(gateway, staff.WorkerUp(worker.name, worker.endpoint))
            case work.Ask():
                self.on_ask(Asked(gateway, message, payload))
            case work.Cancel():
                self.cancelled.put(message)
            case _:
                self.others.put((gateway, message))

    def _line(self) -> None:
        received = frames.receive(self.logs)
        if received is not None:
            self.lines += [msgspec.json.decode(record) for record in received]

    def _woken(self) -> None:
        os.read(self._wake_read, 512)
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return
            job()

    def send(self, gateway: str, message: msgspec.Struct, payload: bytes | None = None) -> None:
        self._loop.used(self._number)
        self.bus.send_multipart([gateway.encode(), *wire.encode(message, payload)])

    def grant(self, asked: Asked, worker: str = "w1", model: str = "tiny") -> None:
        self.send(asked.gateway, work.Granted([work.Grant(asked.ask.number, asked.ask.attempt, worker, model)]))

    def publish(self, asked: Asked, batch: list[Event], worker: str = "w1") -> None:
        self.workers[worker].publish(asked.gateway, batch)

    # From the test

    def do(self, job: Callable[[], Any]) -> Any:
        """Run ``job`` in the stand-in's thread; return or raise what it does."""
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
            worker = self.workers[name] = Worker(self, name)
            for hello in self.gateways:
                self.send(hello.id, staff.WorkerUp(name, worker.endpoint))

        self.do(add)

    def kill_worker(self, name: str, failure: Failure) -> None:
        def kill() -> None:
            worker = self.workers.pop(name)
            worker.close()
            for hello in self.gateways:
                self.send(hello.id, staff.WorkerGone(name, worker.endpoint, failure))

        self.do(kill)

    def next_ask(self) -> Asked:
        return self.asked.get(timeout=DEADLINE)

    def start(self) -> None:
        """Start the gateway and wait until it answers."""
        surroundings = Surroundings(self.runtime, self.boot, self.supervisor.pid)
        self.gateway = subprocess.Popen(
            [sys.executable, "-m", "gateway"],
            cwd=ROOT,
            env={
                **os.environ,
                **surroundings.environment(),
                "PYTHONPATH": str(ROOT),
                "LEMONBUS_LISTEN_FD": str(self.listener.fileno()),
            },
            pass_fds=[self.listener.fileno()],
            start_new_session=True,
        )
        wait_for(lambda: self.gateways and self.get("/live")[0] == 200)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE)

    def raw(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send bytes on a connection of their own; read to its end."""
        with self.connect() as connection:
            connection.sendall(request)
            return parsed(read_to_end(connection))

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        return self.raw(request("GET", path, b"", **headers))

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, dict[str, str], bytes]:
        return self.raw(request("POST", path, body, **headers))

    def close(self) -> None:
        self.supervisor.kill()
        self.supervisor.wait(DEADLINE)
        if self.gateway is not None:
            with contextlib.suppress(ProcessLookupError):
                self.gateway.send_signal(signal.SIGTERM)
            try:
                self.gateway.wait(DEADLINE)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.gateway.pid, signal.SIGKILL)
        self.do(self._loop.stop)
        self._thread.join(DEADLINE)
        self._loop.close()
        self.listener.close()
        for worker in self.workers.values():
            worker.close()
        self.bus.close()
        self.logs.close()
        self.context.term()
        os.close(self._wake_read)
        os.close(self._wake_write)
        self.directory.release()


def request(method: str, path: str, body: Any, **headers: str) -> bytes:
    """Return an HTTP request that closes its connection; ``body``: bytes, or a value for JSON."""
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    if data or method == "POST":
        lines += [f"Content-Length: {len(data)}", "Content-Type: application/json"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in {"Connection": "close", **headers}.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def read_to_end(connection: socket.socket) -> bytes:
    """Return everything until the other side closes."""
    pieces = []
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(65536):
            pieces.append(data)
    return b"".join(pieces)


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    """Return what came until ``mark`` was in it."""
    data = b""
    while mark not in data:
        more = connection.recv(65536)
        assert more, f"closed before {mark!r}: {data!r}"
        data += more
    return data


def parsed(response: bytes) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers (lower case) and body; a broken chunked body ends with ``<broken>``."""
    head, _, body = response.partition(b"\r\n\r\n")
    first, *rest = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    if headers.get("transfer-encoding") == "chunked":
        body = dechunked(body)
    return int(first.split(" ")[1]), headers, body


def dechunked(body: bytes) -> bytes:
    """Return the content of a chunked body."""
    content = b""
    while True:
        size, found, body = body.partition(b"\r\n")
        if not found:
            return content + b"<broken>"
        length = int(size, 16)
        if length == 0:
            return content
        content, body = content + body[:length], body[length + 2 :]


def wait_for(condition: Callable[[], Any]) -> Any:
    """Return what ``condition`` gives once it is true; fails after the deadline."""
    deadline = time.monotonic() + DEADLINE
    while True:
        with contextlib.suppress(ConnectionError):
            value = condition()
            if value:
                return value
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


@contextlib.contextmanager
def standing(folder: Path, **changes: Any) -> Iterator[StandIn]:
    """Run a gateway in a stand-in house."""
    house = StandIn(folder, **changes)
    try:
        house.start()
        yield house
    finally:
        house.close()
