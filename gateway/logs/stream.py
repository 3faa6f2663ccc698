"""``/logs/stream``: the server's log over a WebSocket, on the port of HTTP.

Each reader has three greenlets: one reads the WebSocket, one reads the bus, and that of the request writes. Between the
last two there is a bounded backlog: a slow reader misses entries, is told how many, and does not delay other clients.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import falcon
import gevent
import msgspec
from gevent.event import Event

from gateway.access.presented_key import SUBPROTOCOL
from gateway.access.scopes import Scope
from gateway.bus.calls import SupervisorCall
from gateway.bus.session import SupervisorSession
from gateway.http import errors
from gateway.http.request_context import SOCKET_KEY, RequestContext, request_context
from gateway.logs.log_entries import LogBacklog, LogQuery, parse_query, parse_subscription, render_entry, time_stamp
from gateway.logs.websocket import WebSocketAdapter
from protocol.failures import Code, Failure, LemonbusError, invalid
from protocol.messages.log_stream import LogBatch, LogSnapshot
from protocol.runtime import logs
from protocol.runtime.deferred_module import DeferredModule
from protocol.wire import envelope

if TYPE_CHECKING:
    import simple_websocket
    from wsproto import utilities
else:  # imported for the first reader: most gateways never have one, and the import takes a tenth of their start
    simple_websocket = DeferredModule("simple_websocket")
    utilities = DeferredModule("wsproto.utilities")

PING_INTERVAL: Final = 25.0
READER_TIMEOUT_S: Final = 30.0
"""Seconds after which a reader is cut off if it takes nothing, or does not subscribe."""
CLOSE_TIMEOUT_S: Final = 0.5
"""Seconds that a reader has to read why its connection ends."""
MAX_MESSAGE_BYTES: Final = 64 * 1024
MAX_INVALID_MESSAGES: Final = 10
MAX_READERS: Final = 64
"""Readers of one process, subscribed or not; the supervisor has the same limit for those that are."""
MAX_READERS_OF_KEY: Final = 8
"""Readers of one process with the same API key, unless it is an administrator's."""
KEPT_FOR_ADMINS: Final = 8
"""Readers that no other keys take, however many they are."""
_RETRY_S: Final = 5
"""Seconds after which a reader that was refused may be admitted."""
_ENTRIES_BEFORE_YIELD: Final = 100
"""Entries that are rendered before other greenlets run."""
_GOING_AWAY: Final = 1001
_POLICY_VIOLATION: Final = 1008


def _closed() -> tuple[type[BaseException], ...]:
    """Return the exceptions that say that a reader has left."""
    return simple_websocket.ConnectionClosed, OSError


class LogStreamResource:
    """The route."""

    scopes: ClassVar[Mapping[str, Scope]] = {"GET": Scope.LOGS}
    changes: ClassVar[frozenset[str]] = frozenset({"GET"})
    """GET changes nothing, but foreign pages must not read the log, and CORS does not apply to WebSockets."""
    action: ClassVar[str] = "read the logs"

    def __init__(self, session: SupervisorSession) -> None:
        """Call the supervisor through ``session``."""
        self._session = session
        self._readers: Counter[str] = Counter()
        """API key → its readers; all administrators are one, with an empty name."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Upgrade, and serve until either side ends the connection.

        The query may have fields of the subscription, which override it. Unknown names are ignored, as unknown fields
        are.
        """
        self._session.admission.admit()  # a stream that began now would end at once, with the server
        name = self._name_of(request_context(req.env))
        self._check(name)  # also for a client that only wants to know whether it may read
        if (req.get_header("Upgrade") or "").lower() != "websocket":
            resp.set_header("Upgrade", "websocket")
            raise Failure(Code.INVALID_REQUEST, "this route speaks WebSocket", status=426).raised()
        query = parse_query({name: req.get_param(name) for name in LogQuery.__struct_fields__})
        self._readers[name] += 1
        try:
            self._serve_reader(req, query)
        finally:
            self._readers[name] -= 1
            if not self._readers[name]:
                del self._readers[name]

    def _name_of(self, context: RequestContext) -> str:
        """Return the name of the key by which a reader counts, empty for an administrator."""
        return context.api_key.name if context.api_key is not None and not context.is_admin else ""

    def _check(self, name: str) -> None:
        """Refuse a reader too many before its handshake: a client library reports a status at once, and an error message never."""
        if name and self._readers[name] >= MAX_READERS_OF_KEY:
            text = f"{MAX_READERS_OF_KEY} readers with the API key {name} already follow the log of this process: end one of them"
            raise Failure(Code.RATE_LIMITED, text, retry_after=_RETRY_S).raised()
        if self._readers.total() >= MAX_READERS - (KEPT_FOR_ADMINS if name else 0):
            text = f"{self._readers.total()} readers already follow the log of this process: end one of them"
            raise Failure(Code.OVERLOADED, text, retry_after=_RETRY_S).raised()

    def _serve_reader(self, req: falcon.Request, query: LogQuery) -> None:
        context = request_context(req.env)
        adapter = WebSocketAdapter(req.env[SOCKET_KEY], READER_TIMEOUT_S)
        # If the client does not offer it, nothing is compressed: compressing a snapshot would block other requests.
        env = {**req.env, "gunicorn.socket": adapter}  # the key that simple_websocket looks for
        env.pop("HTTP_SEC_WEBSOCKET_EXTENSIONS", None)
        try:
            socket = simple_websocket.Server.accept(
                env,
                subprotocols=SUBPROTOCOL,
                ping_interval=PING_INTERVAL,
                max_message_size=MAX_MESSAGE_BYTES,
            )
        except (utilities.RemoteProtocolError, simple_websocket.ConnectionError) as problem:
            raise invalid(f"this is not a WebSocket handshake: {problem}") from None
        context.hand_over()
        try:
            _LogReader(self._session, req.env, socket, context.label, query).serve()
        finally:
            adapter.finish(socket.thread)


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
        except _closed():
            return
        except LemonbusError as problem:
            self._failure = problem.failure
        if self._failure is not None and self._failure.code != Code.CANCELLED:
            with contextlib.suppress(*_closed()):
                self._send_error(self._failure)
                refused = self._failure.code in (Code.UNAUTHORIZED, Code.FORBIDDEN)
                self._socket.close(_POLICY_VIOLATION if refused else _GOING_AWAY, self._failure.message[:100])

    def _subscribed(self) -> SupervisorCall | None:
        """Return the call that follows the log once the client has sent a valid subscription; None if it has not."""
        left = READER_TIMEOUT_S
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
            if call.next(READER_TIMEOUT_S) is None:
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
        with contextlib.suppress(*_closed()):
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
