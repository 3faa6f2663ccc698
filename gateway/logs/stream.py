"""``/logs/stream``: the server's log over a WebSocket, on the port of HTTP.

Each reader has three greenlets: one reads the WebSocket, one reads the bus, and that of the request writes. Between the
last two there is a bounded backlog: a slow reader misses entries, is told how many, and does not delay other clients.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import falcon
import gevent
import msgspec
from gevent.event import Event

from gateway.access.connection_places import ConnectionPlaces
from gateway.access.scopes import Scope
from gateway.bus.calls import SupervisorCall
from gateway.bus.session import SupervisorSession
from gateway.http import errors
from gateway.http.request_context import SOCKET_KEY, request_context
from gateway.logs.log_entries import LogBacklog, LogQuery, parse_query, parse_subscription, render_entry, time_stamp
from gateway.websockets import handshake
from gateway.websockets.handshake import CLOSE_TIMEOUT_S, WRITE_TIMEOUT_S
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.log_stream import LogBatch, LogSnapshot
from protocol.runtime import logs
from protocol.wire import envelope

MAX_MESSAGE_BYTES: Final = 64 * 1024
MAX_INVALID_MESSAGES: Final = 10
MAX_READERS: Final = 64
"""Readers of one process, subscribed or not; the supervisor has the same limit for those that are."""
MAX_READERS_OF_KEY: Final = 8
"""Readers of one process with the same API key, unless it is an administrator's."""
_ENTRIES_BEFORE_YIELD: Final = 100
"""Entries that are rendered before other greenlets run."""


class LogStreamResource:
    """The route."""

    scopes: ClassVar[Mapping[str, Scope]] = {"GET": Scope.LOGS}
    changes: ClassVar[frozenset[str]] = frozenset({"GET"})
    """GET changes nothing, but foreign pages must not read the log, and CORS does not apply to WebSockets."""
    action: ClassVar[str] = "read the logs"

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session
        self._places = ConnectionPlaces(MAX_READERS, MAX_READERS_OF_KEY, "readers", "follow the log of this process")

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Upgrade, and serve until either side ends the connection.

        The query may have fields of the subscription, which override it. Unknown names are ignored, as unknown fields
        are.
        """
        self._session.admission.admit()  # a stream that began now would end at once, with the server
        context = request_context(req.env)
        self._places.check(context)  # also for a client that only wants to know whether it may read
        handshake.check_upgrade(req, resp)
        query = parse_query({name: req.get_param(name) for name in LogQuery.__struct_fields__})
        with self._places.taken(context), handshake.accepted(req, MAX_MESSAGE_BYTES) as accepted:
            _LogReader(self._session, req.env, accepted.socket, context.label, query).serve()


class _LogReader:
    """One client of the stream."""

    def __init__(
        self, session: SupervisorSession, env: dict[str, Any], socket: Any, label: str, query: LogQuery
    ) -> None:
        self._session = session
        self._env = env
        self._socket = socket
        self._label = label
        self._query = query
        self._backlog = LogBacklog()
        self._entries_arrived = Event()
        self._ended = False
        self._failure: Failure | None = None

    def serve(self) -> None:
        """Wait for the subscription, then send the kept entries and new ones."""
        try:
            call = self._subscribed()
            if call is None:
                return
            with call:
                self._send_entries(call)
        except handshake.closed():
            return
        except LemonbusError as problem:
            self._failure = problem.failure
        if self._failure is not None and self._failure.code != Code.CANCELLED:
            with contextlib.suppress(*handshake.closed()):
                self._send_error(self._failure)
                handshake.close_for(self._socket, self._failure)

    def _subscribed(self) -> SupervisorCall | None:
        """Return the call that follows the log once the client has sent a valid subscription; None if it has not."""
        left = WRITE_TIMEOUT_S
        for _ in range(MAX_INVALID_MESSAGES):
            message = None
            while message is None and left > 0:
                self._session.admission.admit()
                request_context(self._env).check_access()
                message = self._socket.receive(timeout=0.25)
                left -= 0.25
            if message is None:
                self._socket.close(message="no logs.subscribe came")
                return None
            try:
                return self._begin(message)
            except LemonbusError as problem:
                if problem.failure.code != Code.INVALID_REQUEST:
                    raise
                self._send_error(problem.failure)
        self._socket.close(message="too many mistakes")
        return None

    def _begin(self, message: str | bytes) -> SupervisorCall:
        parse_subscription(0, message, self._query)
        call = self._session.start_call(
            self._env, lambda number: parse_subscription(number, message, self._query), endless=True
        )
        call.stop_watching()
        # The server's shutdown must not wait for a reader that does not read.
        call.on_failure = lambda: gevent.spawn_later(CLOSE_TIMEOUT_S, self._env[SOCKET_KEY].cut)
        try:
            # The answer arrives first, and alone: batches follow the snapshot.
            if call.next(WRITE_TIMEOUT_S) is None:
                call.fail(Failure(Code.TIMEOUT, "the supervisor does not answer"))
                call.next()
            self._snapshot(envelope.unpack_payload(call.report, LogSnapshot))
        except BaseException:
            call.close()
            raise
        return call

    def _snapshot(self, snapshot: LogSnapshot) -> None:
        pieces = []
        for number, entry in enumerate(snapshot.entries):
            pieces.append(render_entry(entry))
            if number % _ENTRIES_BEFORE_YIELD == _ENTRIES_BEFORE_YIELD - 1:
                gevent.sleep(0)
        boot, since = msgspec.json.encode(snapshot.boot), msgspec.json.encode(time_stamp(snapshot.retained_since))
        head = b'{"type":"logs.snapshot","boot":%b,"dropped":%d,"retained_since":%b,"entries":[' % (
            boot,
            snapshot.dropped,
            since,
        )
        self._socket.send((head + b",".join(pieces) + b"]}").decode())

    def _send_entries(self, call: SupervisorCall) -> None:
        helpers = [gevent.spawn(self._listen), gevent.spawn(self._collect, call)]
        try:
            while not self._ended:
                self._entries_arrived.wait()
                self._entries_arrived.clear()
                sent = 0
                while (found := self._backlog.take()) is not None:
                    self._socket.send((b'{"type":"logs.entry","entry":%b}' % render_entry(*found)).decode())
                    sent += 1
                    if sent % _ENTRIES_BEFORE_YIELD == 0:
                        gevent.sleep(0)
        finally:
            gevent.killall(helpers)

    def _collect(self, call: SupervisorCall) -> None:
        try:
            for message in call:
                if isinstance(message, LogBatch):
                    self._backlog.put(message)
                    self._entries_arrived.set()
        except LemonbusError as problem:
            self._failure = problem.failure
        self._end()

    def _listen(self) -> None:
        """Read until the client leaves. It has nothing to send after its subscription."""
        with contextlib.suppress(*handshake.closed()):
            for _ in range(MAX_INVALID_MESSAGES):
                self._socket.receive()
                self._send_error(Failure(Code.INVALID_REQUEST, "the subscription is made; connect again to change it"))
        self._end()

    def _end(self) -> None:
        self._ended = True
        self._entries_arrived.set()

    def _send_error(self, failure: Failure) -> None:
        logs.get_logger().debug("log stream refused", request_id=self._label, reason=failure.message)
        error = errors.error_object(failure, self._label)
        self._socket.send(msgspec.json.encode({"type": "error", "message": failure.message, "error": error}).decode())
