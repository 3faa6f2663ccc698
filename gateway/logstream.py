"""``/logs/stream``: the house's log over a WebSocket, on the port that HTTP is on.

Three greenlets a reader: one reads the WebSocket (its own pongs included), one the bus, and the request's own
writes.  Between the last two is a bounded backlog, so that a reader who is slow misses lines, is told how many,
and costs nobody anything.
"""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar, Final

import falcon
import gevent
import msgspec
import simple_websocket
from gevent.event import Event
from wsproto.utilities import RemoteProtocolError

from gateway import faults
from gateway.calls import Follower
from gateway.house import REFUSALS, House, State
from gateway.loglines import QUERY, Backlog, after_of, level_of, shown, subscription
from gateway.outlet import Outlet
from gateway.visit import of
from protocol import logs, wire
from protocol.admin import LogBatch, LogSnapshot
from protocol.failures import Code, Failure, LemonbusError, invalid

PING_INTERVAL: Final = 25.0
PATIENCE: Final = 30.0
"""A reader that takes nothing for this many seconds, or does not subscribe for so long, is cut off."""
LAST_WORDS_S: Final = 0.5
"""What a reader may take to hear why it is sent away."""
LARGEST_MESSAGE: Final = 64 * 1024
MOST_MISTAKES: Final = 10
_SLICE: Final = 100
"""Entries rendered before others get their turn."""
_GOING_AWAY: Final = 1001
_CLOSED: Final = (simple_websocket.ConnectionClosed, OSError)


class LogStream:
    """The route."""

    changes: ClassVar[frozenset[str]] = frozenset({"GET"})
    """It changes nothing, but no foreign page may read along: WebSockets know no CORS."""
    deed: ClassVar[str] = "read the logs"

    def __init__(self, house: House) -> None:
        """Ask ``house``."""
        self._house = house

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Upgrade, and serve until one side has had enough.

        The query may say what the subscription may, which has the last word; names that it does not know are passed
        over, as unknown fields are.
        """
        if (req.get_header("Upgrade") or "").lower() != "websocket":
            resp.set_header("Upgrade", "websocket")
            raise Failure(Code.INVALID_REQUEST, "this route speaks WebSocket", status=426).raised()
        query = {key: req.get_param(key, default="") for key in QUERY}
        level_of(query["level"])
        after_of(query["after_seq"])
        visit = of(req.env)
        outlet = Outlet(req.env["gunicorn.socket"], PATIENCE)
        # Without the client's offer nothing is compressed: a snapshot would hold everybody else up.
        env = {**req.env, "gunicorn.socket": outlet}
        env.pop("HTTP_SEC_WEBSOCKET_EXTENSIONS", None)
        try:
            socket = simple_websocket.Server.accept(env, ping_interval=PING_INTERVAL, max_message_size=LARGEST_MESSAGE)
        except (RemoteProtocolError, simple_websocket.ConnectionError) as problem:
            raise invalid(f"this is no WebSocket handshake: {problem}") from None
        visit.hand_over()
        try:
            _Reader(self._house, req.env, socket, visit.label, query).serve()
        finally:
            outlet.finish(socket.thread)


class _Reader:
    """One client of the stream."""

    def __init__(self, house: House, env: dict[str, Any], socket: Any, label: str, query: dict[str, str]) -> None:
        self._house = house
        self._env = env
        self._socket = socket
        self._label = label
        self._query = query
        self._backlog = Backlog()
        self._something = Event()
        self._ended = False
        self._failure: Failure | None = None

    def serve(self) -> None:
        """Wait for the subscription, then send what there is and what comes."""
        try:
            follower = self._subscribed()
            if follower is None:
                return
            with follower:
                self._follow(follower)
        except _CLOSED:
            return
        except LemonbusError as problem:
            self._failure = problem.failure
        if self._failure is not None and self._failure.code != Code.CANCELLED:
            with contextlib.suppress(*_CLOSED):
                self._complain(self._failure)
                self._socket.close(_GOING_AWAY, self._failure.message[:100])

    def _subscribed(self) -> Follower | None:
        """Return what follows the log, once the client has said so in a way that the supervisor takes."""
        left = PATIENCE
        for _ in range(MOST_MISTAKES):
            message = None
            while message is None and left > 0:
                if self._house.state is not State.OPEN:
                    raise REFUSALS[self._house.state].raised()
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
                self._complain(problem.failure)
        self._socket.close(message="too many mistakes")
        return None

    def _begin(self, message: str | bytes) -> Follower:
        subscription(0, message, self._query)
        follower = self._house.follow(
            self._env, lambda number: subscription(number, message, self._query), endless=True
        )
        follower.stop_watching()
        # The server's end must not wait for one who does not read.
        follower.on_failure = lambda: gevent.spawn_later(LAST_WORDS_S, self._env["gunicorn.socket"].cut)
        try:
            # The answer comes first, and only it: batches follow the snapshot.
            if follower.next(PATIENCE) is None:
                follower.fail(Failure(Code.TIMEOUT, "the supervisor does not answer"))
                follower.next()
            self._snapshot(wire.unpack(follower.report, LogSnapshot))
        except BaseException:
            follower.close()
            raise
        return follower

    def _snapshot(self, snapshot: LogSnapshot) -> None:
        pieces = []
        for number, entry in enumerate(snapshot.entries):
            pieces.append(shown(entry))
            if number % _SLICE == _SLICE - 1:
                gevent.sleep(0)
        boot = msgspec.json.encode(snapshot.boot)
        head = b'{"type":"logs.snapshot","boot":%b,"dropped":%d,"entries":[' % (boot, snapshot.dropped)
        self._socket.send((head + b",".join(pieces) + b"]}").decode())

    def _follow(self, follower: Follower) -> None:
        helpers = [gevent.spawn(self._listen), gevent.spawn(self._collect, follower)]
        try:
            while not self._ended:
                self._something.wait()
                self._something.clear()
                sent = 0
                while (found := self._backlog.take()) is not None:
                    self._socket.send((b'{"type":"logs.entry","entry":%b}' % shown(*found)).decode())
                    sent += 1
                    if sent % _SLICE == 0:
                        gevent.sleep(0)
        finally:
            gevent.killall(helpers)

    def _collect(self, follower: Follower) -> None:
        try:
            for message in follower:
                if isinstance(message, LogBatch):
                    self._backlog.put(message)
                    self._something.set()
        except LemonbusError as problem:
            self._failure = problem.failure
        self._end()

    def _listen(self) -> None:
        """Read what the client says, which nobody asked for, until it leaves."""
        with contextlib.suppress(*_CLOSED):
            for _ in range(MOST_MISTAKES):
                self._socket.receive()
                self._complain(Failure(Code.INVALID_REQUEST, "the subscription is made; connect again to change it"))
        self._end()

    def _end(self) -> None:
        self._ended = True
        self._something.set()

    def _complain(self, failure: Failure) -> None:
        logs.get().debug("log reader", request_id=self._label, problem=failure.message)
        error = faults.described(failure, self._label)
        self._socket.send(msgspec.json.encode({"type": "error", "message": failure.message, "error": error}).decode())
