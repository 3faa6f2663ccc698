"""One HTTP/1.1 connection to the engine: non-blocking, on the loop, one request at a time.

llama-server closes a connection after every stream (measured), and after about a hundred other answers: the
former is not kept, and a kept one that closes before any byte of an answer came is no failure, the request
goes out again on a fresh one.  To cancel is to close.
"""

from __future__ import annotations

import errno
import socket
from typing import Final, Protocol

import httptools

from protocol.runtime.loop import Loop
from workers.backends.base import EngineRequest
from workers.stream.read_batching import ReadBatcher

_IN_PROGRESS: Final = (0, errno.EINPROGRESS)


class ConnectionOwner(Protocol):
    """Who opens connections and keeps them (``client.py``)."""

    loop: Loop
    port: int
    head: str
    open: bool
    buffer: memoryview
    read_batcher: ReadBatcher

    def send_fresh(self, exchange: EngineExchange) -> None:
        """Send on a fresh connection."""

    def warm(self) -> None:
        """Have a connection ready for the next request."""

    def keep(self, connection: EngineConnection) -> None:
        """Keep a connection for later."""

    def forget(self, connection: EngineConnection) -> None:
        """A connection was closed."""


class ResponseHandler(Protocol):
    """Who is told about an answer. After ``ended`` or ``broke`` nothing more comes."""

    def began(self, status: int) -> None:
        """The headers are there."""

    def data(self, piece: bytes) -> None:
        """A part of the body."""

    def ended(self) -> None:
        """The answer is complete."""

    def broke(self, reason: str) -> None:
        """The connection ended before the answer did."""


class EngineExchange:
    """One request under way."""

    def __init__(self, owner: ConnectionOwner, request: EngineRequest, answer: ResponseHandler) -> None:
        """Made by :meth:`workers.engine.connection_pool.EngineConnectionPool.send`."""
        self.owner = owner
        self.request = request
        self.answer = answer
        self.connection: EngineConnection | None = None

    def settle(self) -> None:
        """Its first token is out: from now on it may be read together with others."""
        if self.connection is not None:
            self.owner.read_batcher.settle(self.connection)

    def hurry(self) -> None:
        """Tell what is there and what comes at once, if the request was sent patiently."""
        if self.connection is not None:
            self.connection.wake_at(1)

    def cancel(self) -> None:
        """Hang up: the answer is told nothing more."""
        if self.connection is not None:
            self.connection.close()


class EngineConnection:
    """One socket to the engine."""

    def __init__(self, owner: ConnectionOwner, warm: bool = False) -> None:
        """Begin to connect; a refusal is told like any other break. ``warm``: ahead of any request."""
        self._owner = owner
        self._loop = owner.loop
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._fd = self._socket.fileno()
        self._exchange: EngineExchange | None = None
        self._unsent = memoryview(b"")
        self._parser: httptools.HttpResponseParser | None = None
        self._answered = self._complete = self._keep = False
        self._warm = warm
        self._reused = False
        self._problem = self._socket.connect_ex(("127.0.0.1", owner.port))
        self._loop.on_readable(self._fd, self.read)

    def send(self, exchange: EngineExchange) -> None:
        """Start an exchange; there is none at the moment."""
        self._reused = self._warm or self._parser is not None
        self._exchange, exchange.connection = exchange, self
        self._parser = httptools.HttpResponseParser(self)
        self._answered = self._complete = False
        request = exchange.request
        if request.patient:
            self._owner.read_batcher.wait(self)
        head = f"{request.method} {request.path} HTTP/1.1\r\n{self._owner.head}"
        if request.method == "POST":
            head += f"Content-Type: {request.content_type}\r\nContent-Length: {len(request.body)}\r\n"
        if request.patient:
            # The end of the connection ends the wait; not all engines close after a stream by themselves.
            head += "Connection: close\r\n"
        self._unsent = memoryview(head.encode() + b"\r\n" + request.body)
        if self._problem in _IN_PROGRESS:
            self._write()
        else:
            # Told from the loop, not from inside the caller's own call.
            self._loop.call_later(0.0, lambda: self._break(errno.errorcode.get(self._problem, "connect")))

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._fd

    def wake_at(self, size: int) -> None:
        """Be readable when ``size`` bytes are there, or the end."""
        if self._fd >= 0:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def wake(self, on: bool) -> None:
        """Be read by the loop when there is something, or only when somebody calls :meth:`read`."""
        if self._fd >= 0:
            self._loop.on_readable(self._fd, self.read if on else None)

    def _write(self) -> None:
        if self._fd < 0:
            return
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            self._unsent = memoryview(b"")  # an empty slice would keep the whole request
        except BlockingIOError:
            self._loop.on_writable(self._fd, self._write)
            return
        except OSError:
            # The engine may have answered before it hung up: reading tells.
            self._unsent = memoryview(b"")
        self._loop.on_writable(self._fd, None)

    def read(self) -> None:
        """Read what there is; at most one large piece a turn."""
        if self._fd < 0:
            return
        buffer = self._owner.buffer
        try:
            size = self._socket.recv_into(buffer)
        except BlockingIOError:
            return
        except OSError as problem:
            self._break(problem.strerror or "connection lost")
            return
        if not size:
            self._break("the engine closed the connection")
            return
        if self._parser is None or self._exchange is None:
            self.close()
            return
        self._answered = True
        self._owner.read_batcher.came(self)
        try:
            self._parser.feed_data(buffer[:size])
        except httptools.HttpParserError as problem:
            self._break(f"not HTTP: {problem}")
            return
        if self._complete:
            self._finish()

    def drain(self) -> None:
        """Read all that a dead engine still sent."""
        for _ in range(100_000):
            if self._fd < 0 or self._exchange is None:
                return
            before = self._fd
            try:
                self._socket.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                return
            except OSError:
                pass
            self.read()
            if before != self._fd:
                return

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        if self._exchange is not None and self._parser is not None:
            self._exchange.answer.began(self._parser.get_status_code())

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        if self._exchange is not None:
            self._exchange.answer.data(body)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        self._complete = True
        self._keep = self._parser is not None and self._parser.should_keep_alive()

    def _finish(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        exchange.connection = None
        self._owner.read_batcher.leave(self)
        if self._keep and not self._unsent and not exchange.request.streamed:
            self._owner.keep(self)
        else:
            self.close()
            self._owner.warm()
        exchange.answer.ended()

    def _break(self, reason: str) -> None:
        exchange = self._exchange
        fresh = self._reused and not self._answered
        self.close()
        if exchange is None:
            return
        if fresh and self._owner.open:
            self._owner.send_fresh(exchange)
        else:
            exchange.answer.broke(reason)

    def close(self) -> None:
        """Close the socket; nobody is told."""
        if self._fd < 0:
            return
        self._loop.on_readable(self._fd, None)
        self._loop.on_writable(self._fd, None)
        self._fd = -1
        self._socket.close()
        self._parser = None  # it knows us
        if self._exchange is not None:
            self._exchange.connection = None
            self._exchange = None
        self._owner.forget(self)
