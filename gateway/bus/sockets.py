"""The gateway's sockets: control (DEALER), events (SUB) and logs (PUSH), read from gevent's loop.

Plain ZeroMQ sockets, not the green ones: a socket's file descriptor only signals edges, so a watcher drains it
until there is nothing, every send looks whether it swallowed an edge, and a watchdog looks twice a second.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import gevent
import msgspec
import zmq
from zmq.utils.monitor import parse_monitor_message

from gateway.bus.session import SupervisorSession
from gateway.logs.request_log_buffer import RequestLogBuffer
from protocol import ids
from protocol.failures import Code, Failure
from protocol.messages.events import unpack_batch
from protocol.messages.peers import Hello
from protocol.runtime import logs
from protocol.runtime.log_records import DropCounter
from protocol.runtime.process_context import ProcessContext
from protocol.wire import endpoints, envelope, frames

_READ: Final = 1
MAX_OUTBOX_MESSAGES: Final = 10_000
"""Control messages that may wait for a supervisor that does not read."""
EVENTS_HIGH_WATER: Final = 100_000
"""Event messages that may wait for us; one is a turn of a worker's loop."""
WATCHDOG_INTERVAL_S: Final = 0.5
RECORDS_DELAY_S: Final = 0.02
RECORDS_PER_MESSAGE: Final = 256
"""Log records in one message."""


class GatewayBus:
    """Owns the sockets of one gunicorn worker. Open it after the fork."""

    def __init__(self, session: SupervisorSession, process_context: ProcessContext) -> None:
        """Connect, say Hello, and start to read."""
        self._session = session
        self._process_context = process_context
        self._worker_sockets: dict[str, zmq.Socket[bytes]] = {}
        """To the workers that lent us slots."""
        self._log = logs.get_logger()
        self._outbox: deque[bytes] = deque()
        self._connected: dict[str, bool] = {}
        self._scheduled: set[Callable[[], None]] = set()
        self._closed = False
        """What the loop still had to call comes to nothing then."""
        self._watchers: list[Any] = []
        self._context = zmq.Context()
        self._logs = self._socket(zmq.PUSH)
        self._logs.linger = 200
        self._logs.sndhwm = MAX_OUTBOX_MESSAGES
        self._logs.connect(endpoints.logs(process_context.runtime, process_context.boot))
        self._records: list[bytes] = []
        self._record_timer: Any = None
        logs.set_sink(DropCounter(self._send_record))
        self._request_log_buffer = RequestLogBuffer()
        self._events = self._socket(zmq.SUB)
        self._events.rcvhwm = EVENTS_HIGH_WATER
        # A worker that comes back does so under another name; a slow reconnect only costs the dead ones.
        self._events.reconnect_ivl = 100
        topic = ids.topic(session.id)
        self._topic_length = len(topic)
        self._events.subscribe(topic)
        self._monitor = self._events.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._control = self._socket(zmq.DEALER)
        self._control.routing_id = session.id.encode()
        self._control.sndhwm = MAX_OUTBOX_MESSAGES
        self._control.rcvhwm = MAX_OUTBOX_MESSAGES
        self._control.connect(endpoints.bus(process_context.runtime))
        self.control_file = endpoints.socket_file(endpoints.bus(process_context.runtime))
        """The file of the supervisor's socket."""
        session.open(self)
        self._watch(self._control, self._control_turn)
        self._watch(self._events, self._event_turn)
        self._watch(self._monitor, self._monitor_turn)
        self._timer = gevent.get_hub().loop.timer(WATCHDOG_INTERVAL_S, WATCHDOG_INTERVAL_S)
        self._timer.start(self._watchdog)
        self.send(Hello("gateway", session.id, os.getpid(), process_context.boot))

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.linger = 0
        return socket

    def _watch(self, socket: zmq.Socket[bytes], turn: Callable[[], None]) -> None:
        watcher = gevent.get_hub().loop.io(socket.getsockopt(zmq.FD), _READ)
        watcher.start(turn)
        self._watchers.append(watcher)

    # Sending

    def send(self, message: msgspec.Struct, payload: bytes = b"") -> None:
        """Send to the supervisor. Raises ``overloaded`` if too many messages wait for it already."""
        frame = envelope.encode(message, payload)
        if self._outbox or not frames.send(self._control, frame):
            if len(self._outbox) >= MAX_OUTBOX_MESSAGES:
                raise Failure(Code.OVERLOADED, "the supervisor does not keep up", retry_after=1).raised()
            self._outbox.append(frame)
        self._look(self._control, self._control_turn)

    def _look(self, socket: zmq.Socket[bytes], turn: Callable[[], None]) -> None:
        """After anything that may have swallowed the edge of a socket: read it soon if there is something."""
        if turn not in self._scheduled and frames.readable(socket):
            self._scheduled.add(turn)
            gevent.get_hub().loop.run_callback(turn)

    def _send_record(self, record: bytes) -> bool:
        """Keep it for a moment: a message of its own for each line wakes three threads and another process."""
        if len(self._records) >= MAX_OUTBOX_MESSAGES:
            return False
        self._records.append(record)
        if self._record_timer is None:
            self._send_records_soon()
        return True

    def _send_records_soon(self) -> None:
        # A fresh one each time: a one-shot timer of libev that is started again fires at once.
        self._record_timer = gevent.get_hub().loop.timer(RECORDS_DELAY_S)
        self._record_timer.start(self._send_records, update=True)

    def _send_records(self) -> None:
        if self._record_timer is not None:
            self._record_timer.close()
            self._record_timer = None
        self._send_some_records()
        if self._records:
            self._send_records_soon()

    def _send_some_records(self) -> bool:
        batch = self._records[:RECORDS_PER_MESSAGE]
        if not batch or not frames.send(self._logs, b"\n".join(batch)):
            return False
        del self._records[:RECORDS_PER_MESSAGE]
        return True

    def run(self, worker: str, message: msgspec.Struct, payload: bytes = b"") -> bool:
        """Send to a worker that lent us slots; return False if it cannot take it now."""
        line = self._worker_sockets.get(worker)
        return line is not None and frames.send(line, envelope.encode(message, payload))

    def lent(self, worker: str) -> None:
        """Connect to a worker that takes requests from us."""
        if worker not in self._worker_sockets:
            line = self._worker_sockets[worker] = self._socket(zmq.PUSH)
            line.sndhwm = MAX_OUTBOX_MESSAGES
            line.connect(endpoints.runs(self._process_context.runtime, self._process_context.boot, worker))

    # Reading

    def _control_turn(self) -> None:
        if self._closed:
            return
        self._scheduled.discard(self._control_turn)
        self._drain_control()
        while self._outbox and frames.send(self._control, self._outbox[0]):
            self._outbox.popleft()
        # The flush may have swallowed the edge of what came meanwhile.
        self._look(self._control, self._control_turn)
        self._session.notify_exchanges()

    def _event_turn(self) -> None:
        if self._closed:
            return
        self._scheduled.discard(self._event_turn)
        self.drain_events()
        self._session.notify_exchanges()

    def _monitor_turn(self) -> None:
        if self._closed:
            return
        self._drain_monitor()
        self._session.notify_exchanges()

    def _watchdog(self) -> None:
        self._control_turn()
        self._event_turn()
        self._monitor_turn()

    def _drain_control(self) -> None:
        for frame in frames.receive_each(self._control):
            try:
                message, payload = envelope.decode(frame)
            except envelope.MalformedError as problem:
                self._log.warning("malformed message from the supervisor", problem=str(problem))
                continue
            self._session.on_message(message, payload)

    def drain_events(self) -> None:
        """Deliver every event that is already here."""
        for frame in frames.receive_each(self._events):
            try:
                worker, batch = unpack_batch(frame, self._topic_length)
            except ValueError as problem:
                self._log.warning("malformed events", problem=str(problem))
                continue
            self._session.on_events(batch, worker)

    def _drain_monitor(self) -> None:
        while True:
            try:
                event = parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return
            endpoint = event["endpoint"].decode()
            if endpoint in self._connected:
                self._connected[endpoint] = False
                self.drain_events()
                self._session.on_disconnected(endpoint)

    # Workers

    def connect(self, endpoint: str) -> None:
        """Read this worker's events."""
        if endpoint not in self._connected:
            self._connected[endpoint] = True
            self._events.connect(endpoint)
            self._look(self._events, self._event_turn)

    def disconnect(self, worker: str, endpoint: str) -> None:
        """Read a worker's events no more, and send it nothing."""
        line = self._worker_sockets.pop(worker, None)
        if line is not None:
            line.close()
        if self._connected.pop(endpoint, None) is not None:
            try:
                self._events.disconnect(endpoint)
            except zmq.ZMQError as problem:
                self._log.debug("was not connected", endpoint=endpoint, problem=str(problem))
            self._look(self._events, self._event_turn)

    def ended(self, endpoint: str) -> bool:
        """Return whether the connection to ``endpoint`` has ended."""
        return not self._connected.get(endpoint, False)

    def close(self) -> None:
        """Give everything back."""
        self._closed = True
        self._request_log_buffer.close()
        logs.set_sink(None)
        while self._send_some_records():
            pass
        if self._record_timer is not None:
            self._record_timer.close()
        self._timer.stop()
        self._timer.close()
        for watcher in self._watchers:
            watcher.stop()
            watcher.close()
        self._events.disable_monitor()
        for socket in (self._monitor, self._control, self._events, self._logs, *self._worker_sockets.values()):
            socket.close()
        self._context.term()
