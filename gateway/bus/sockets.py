"""The gateway's sockets: control (DEALER), events (SUB) and logs (PUSH), read from gevent's loop.

Plain ZeroMQ sockets, not gevent's: a socket's file descriptor only signals edges. So a watcher reads until nothing is
left, every send is followed by a check for something to read, and a timer reads all sockets twice a second.
"""

from __future__ import annotations

import os
import struct
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import gevent
import msgspec
import zmq

from gateway.bus.log_sender import LogSender, RequestLogBuffer
from gateway.bus.session import SupervisorSession
from gateway.process_watch import ProcessWatch, watch_instead
from protocol import ids
from protocol.failures import Code, Failure
from protocol.messages.events import unpack_batch
from protocol.messages.peers import Hello
from protocol.models.nodes import HEAD
from protocol.runtime import logs
from protocol.runtime.process_context import ProcessContext
from protocol.wire import envelope, frames
from protocol.wire.bus_connection import SupervisorDealer, connect_logs

_READ: Final = 1
MAX_OUTBOX_MESSAGES: Final = 10_000
"""How many control messages wait for a supervisor that does not read.

Beyond that, only those that must arrive are sent.
"""
EVENTS_HIGH_WATER: Final = 100_000
"""Event messages that wait to be read; a worker sends one in each iteration of its loop."""
READ_ALL_INTERVAL_S: Final = 0.5
_LINGER_MS: Final = 200
"""How long the last message to another node may take."""
_EVENT: Final = struct.Struct("=H")
_HANDSHAKE_SUCCEEDED: Final = int(zmq.EVENT_HANDSHAKE_SUCCEEDED)


class GatewayBus:
    """Owns the sockets of one gunicorn worker. Open it after the fork."""

    def __init__(self, session: SupervisorSession, process_context: ProcessContext) -> None:
        """Connect, say Hello, and start to read."""
        self._log = logs.get_logger()
        self._outbox: deque[bytes] = deque()
        self._connected: dict[str, bool] = {}
        self._scheduled: set[Callable[[], None]] = set()
        self._closed = False
        """If the loop still calls callbacks, they do nothing then."""
        self._unwatch: list[Callable[[], None]] = []
        self._context = zmq.Context()
        self._logs = self._socket(zmq.PUSH)
        self._log_sender = LogSender(self._logs)
        self._address = process_context.bus
        connect_logs(self._logs, self._address, process_context.boot)
        self._request_log_buffer = RequestLogBuffer()
        self._events = self._socket(zmq.SUB)
        self._events.rcvhwm = EVENTS_HIGH_WATER
        self._events.sndhwm = 0  # subscriptions: none may be lost
        # A restarted worker has another name, so a slow reconnect only concerns dead workers.
        self._events.reconnect_ivl = 100
        topic = ids.topic(session.id)
        self._topic_length = len(topic)
        self._events.subscribe(topic)
        # A worker on another node may be reached again; one on this node ends with its connection.
        monitored = zmq.EVENT_DISCONNECTED | (zmq.EVENT_HANDSHAKE_SUCCEEDED if self._address.cluster is not None else 0)
        self._monitor = self._events.get_monitor_socket(monitored)
        self._session = session
        self._process_context = process_context
        self._supervisor = SupervisorDealer(
            context=self._context,
            address=self._address,
            peer=session.id.encode(),
            watch=self._watch,
            read=self._read_control,
            ended=self._supervisor_ended,
            limit=MAX_OUTBOX_MESSAGES,
        )
        self._supervisor_process: ProcessWatch | None = None
        self._handlers = session.open(self)
        elsewhere = self._supervisor.is_remote
        self._on_events = self._handlers.on_events_elsewhere if elsewhere else self._handlers.on_events
        self._unwatch += [self._watch(self._events, self._read_events), self._watch(self._monitor, self._read_monitor)]
        self._timer = gevent.get_hub().loop.timer(READ_ALL_INTERVAL_S, READ_ALL_INTERVAL_S)
        self._timer.start(self._read_all)
        session.connect()

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.linger = 0
        return socket

    @staticmethod
    def _watch(socket: zmq.Socket[bytes], read: Callable[[], None]) -> Callable[[], None]:
        """Call back in the hub when a socket has something to read; return what ends that."""
        watcher = gevent.get_hub().loop.io(socket.getsockopt(zmq.FD), _READ)
        watcher.start(read)

        def unwatch() -> None:
            watcher.stop()
            watcher.close()

        return unwatch

    # The supervisor

    def find_supervisor(self) -> int:
        """Return the pid of the supervisor that accepts connections now, -1 for one on another node, 0 if there is none."""
        return self._supervisor.find()

    def connect_control(self, snapshot: bytes) -> None:
        """Say Hello with ``snapshot`` on a new connection to the supervisor that was found."""
        self.disconnect_control()
        self._supervisor.open()
        context = self._process_context
        node = "" if context.node == HEAD else context.node
        session = self._session
        self.send(Hello("gateway", session.id, os.getpid(), context.boot, node=node, proof=session.proof), snapshot)

    def disconnect_control(self) -> None:
        """Drop the connection with everything that waits in it, if there is one."""
        self._outbox.clear()
        self._supervisor.drop()

    def connection_is_broken(self) -> bool:
        """Return whether that connection has ended, or could not be made."""
        return self._supervisor.is_broken()

    @property
    def control_file(self) -> Path:
        """The file of the supervisor's socket on this node."""
        return self._supervisor.file

    def watch_supervisor(self, pid: int) -> None:
        """Tell the session when this process of this node has ended, instead of the one watched before."""
        if not self._supervisor.is_remote:
            self._supervisor_process = watch_instead(self._supervisor_process, pid, self._supervisor_ended)

    def _supervisor_ended(self) -> None:
        if not self._closed:
            self.drain_events()  # these say which requests have a worker
            self._session.supervisor_ended()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back in a later iteration of the hub's loop."""
        timer = gevent.get_hub().loop.timer(seconds)

        def call() -> None:
            timer.close()
            if not self._closed:
                callback()

        timer.start(call)

    # Sending

    def send(self, message: msgspec.Struct, payload: bytes = b"", *, must_arrive: bool = False) -> None:
        """Send to the supervisor, in order. Raises ``overloaded`` if too many messages wait for it already.

        ``must_arrive``: the message waits in any case. Only for the end of a request or a call that was sent before.
        """
        frame = envelope.encode(message, payload)
        control = self._supervisor.dealer
        if control is None:
            raise Failure(Code.OVERLOADED, "the supervisor is being replaced", retry_after=1).raised()
        if len(self._outbox) >= MAX_OUTBOX_MESSAGES and not must_arrive:
            raise Failure(Code.OVERLOADED, "the supervisor does not keep up", retry_after=1).raised()
        for part in self._supervisor.frames_of(frame):
            if self._outbox or not frames.send(control, part):
                self._outbox.append(part)
        self._read_soon(control, self._read_control)

    def _read_soon(self, socket: zmq.Socket[bytes], read: Callable[[], None]) -> None:
        """Read a socket soon if there is something in it. Call this after anything that may have consumed its edge."""
        if read not in self._scheduled and frames.readable(socket):
            self._scheduled.add(read)
            gevent.get_hub().loop.run_callback(read)

    # Reading

    def _read_control(self) -> None:
        if self._closed:
            return
        self._scheduled.discard(self._read_control)
        self.read_control()
        if (control := self._supervisor.dealer) is not None:
            while self._outbox and frames.send(control, self._outbox[0]):
                self._outbox.popleft()
            # Sending may have consumed the edge of what has arrived meanwhile.
            self._read_soon(control, self._read_control)
        self._handlers.notify_exchanges()

    def _read_events(self) -> None:
        if self._closed:
            return
        self._scheduled.discard(self._read_events)
        self.drain_events()
        self._handlers.notify_exchanges()

    def _read_monitor(self) -> None:
        if self._closed:
            return
        self._drain_monitor()
        self._handlers.notify_exchanges()

    def _read_all(self) -> None:
        self._read_control()
        self._read_events()
        self._read_monitor()
        self._supervisor.look()
        self._session.check_connection(time.monotonic())
        self._session.end_withdrawn()

    def read_control(self) -> None:
        """Deliver what the supervisor has sent."""
        if self._supervisor.dealer is None:
            return
        for frame in self._supervisor.receive():
            try:
                message, payload = envelope.decode(frame)
            except envelope.MalformedError as problem:
                self._log.warning("malformed message from the supervisor", reason=str(problem))
                continue
            self._handlers.on_message(message, payload)

    def drain_events(self) -> None:
        """Deliver the events that have arrived."""
        for frame in frames.receive_each(self._events):
            try:
                worker, batch = unpack_batch(frame, self._topic_length)
            except ValueError as problem:
                self._log.warning("malformed events from a worker", reason=str(problem))
                continue
            self._on_events(batch, worker)

    def _drain_monitor(self) -> None:
        while True:
            try:
                event, address = self._monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            endpoint = address.decode()
            if endpoint in self._connected and _EVENT.unpack_from(event)[0] == _HANDSHAKE_SUCCEEDED:
                self._connected[endpoint] = True
            elif endpoint in self._connected:
                self._connected[endpoint] = False
                self.drain_events()
                self._handlers.on_disconnected(endpoint)

    # Workers

    def use_topic(self, gateway: str, former: str) -> None:
        """Take the events for this id from now on, and no more for the former one: workers cancel what they do for that."""
        topic = ids.topic(gateway)
        self._topic_length = len(topic)
        self._events.subscribe(topic)
        self._events.unsubscribe(ids.topic(former))
        self._read_soon(self._events, self._read_events)

    def hold(self, attempt: ids.RequestKey, on: bool) -> None:
        """Subscribe to the topic that lets a worker hold the answer of an attempt, or unsubscribe."""
        if not self._closed:
            (self._events.subscribe if on else self._events.unsubscribe)(ids.hold_topic(attempt))
            self._read_soon(self._events, self._read_events)

    def connect(self, endpoint: str) -> None:
        """Subscribe to the events of the worker at ``endpoint``."""
        if endpoint not in self._connected:
            self._connected[endpoint] = True
            if (cluster := self._address.cluster) is not None:
                from protocol.wire import curve  # noqa: PLC0415 - only servers with a cluster need it

                if endpoint.startswith("tcp:"):
                    curve.use_curve(self._events, endpoint, cluster.keys.member.public, cluster.keys)
                else:
                    curve.use_none(self._events)
            self._events.connect(endpoint)
            self._read_soon(self._events, self._read_events)

    def disconnect(self, endpoint: str) -> None:
        """Unsubscribe from a worker's events."""
        if self._connected.pop(endpoint, None) is not None:
            try:
                self._events.disconnect(endpoint)
            except zmq.ZMQError as problem:
                self._log.debug("the event socket was not connected", endpoint=endpoint, reason=str(problem))
            self._read_soon(self._events, self._read_events)

    def ended(self, endpoint: str) -> bool:
        """Return whether the connection to ``endpoint`` has ended."""
        return not self._connected.get(endpoint, False)

    def close(self) -> None:
        """Close all sockets."""
        self._closed = True
        self._request_log_buffer.close()
        self._log_sender.close()
        self._timer.stop()
        self._timer.close()
        if self._supervisor.is_remote and self._supervisor.dealer is not None:
            from protocol.messages.gateway_hosts import GatewayLeaves  # noqa: PLC0415 - only servers with a cluster need it

            frames.send(self._supervisor.dealer, envelope.encode(GatewayLeaves()))
        self._supervisor.close(_LINGER_MS if self._supervisor.is_remote else 0)
        if self._supervisor_process is not None:
            self._supervisor_process.close()
        for unwatch in self._unwatch:
            unwatch()
        self._events.disable_monitor()
        for socket in (self._monitor, self._events, self._logs):
            socket.close()
        self._context.term()
