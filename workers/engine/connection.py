"""One HTTP/1.1 connection to the engine: non-blocking, driven by the event loop, one request at a time.

Invariants:

* Each exchange ends with exactly one call of its handler: ``ended``, ``broke``, ``malformed`` or ``crashed``; after
  :meth:`EngineExchange.cancel`, none of them is called.
* A connection is kept for another request only after a complete response that has a length.
* A kept connection that closes before any byte of a response is not a failure: the request is sent again on a new
  connection.  llama-server closes a connection after every stream and after about a hundred other responses (measured).
* If a connection cannot be opened, for example because this process has no descriptors left, nothing is raised: the
  request that is sent on it breaks, as it does when the engine refuses the connection.
* If our own code raises in a handler, only that request fails (``crashed``). This is never reported as bad HTTP.

To cancel a request, its connection is closed.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Final, Protocol

import httptools

from protocol.runtime.loop import Loop
from workers.engine.exchange import EngineExchange
from workers.stream.read_batching import ReadBatcher

_CONNECTING: Final = (0, errno.EINPROGRESS)
_LENGTH_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding"})
MAX_DRAIN_READS: Final = 100_000


class ConnectionOwner(Protocol):
    """The pool that opens connections and keeps them (``connection_pool.py``)."""

    loop: Loop
    port: int
    head: str
    open: bool
    buffer: memoryview
    read_batcher: ReadBatcher

    def send_on_new_connection(self, exchange: EngineExchange) -> None:
        """Send a request on a new connection."""

    def connect_ahead(self) -> None:
        """Have a connection ready for the next request."""

    def keep(self, connection: EngineConnection) -> None:
        """Keep a connection for later."""

    def forget(self, connection: EngineConnection) -> None:
        """Take note that a connection was closed."""


class EngineConnection:
    """One socket to the engine."""

    def __init__(self, owner: ConnectionOwner, ahead: bool = False) -> None:
        """Begin to connect. A failure is reported like any other break. ``ahead``: no request is waiting for it."""
        self._owner = owner
        self._loop = owner.loop
        self._socket: socket.socket
        self._fd = -1
        """The descriptor of ``_socket``, -1 while there is no open socket."""
        self._exchange: EngineExchange | None = None
        self._unsent = memoryview(b"")
        self._parser: httptools.HttpResponseParser | None = None
        self._bytes_received = self._headers_complete = self._has_length = self._complete = self._keep_alive = False
        self._ahead = ahead
        self._reused = False
        self._connect_error = self._connect()

    def _connect(self) -> int:
        """Begin to connect; return the error number, which is one of ``_CONNECTING`` if there is no error yet."""
        try:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as problem:
            return problem.errno or errno.EIO
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            error = self._socket.connect_ex(("127.0.0.1", self._owner.port))
            self._loop.on_readable(self._socket.fileno(), self.read)
        except OSError as problem:
            self._socket.close()
            return problem.errno or errno.EIO
        self._fd = self._socket.fileno()
        return error

    @property
    def opened(self) -> bool:
        """Whether the connection exists or may come to exist."""
        return self._connect_error in _CONNECTING

    def send(self, exchange: EngineExchange) -> None:
        """Start an exchange; the previous one has ended."""
        self._reused = self._ahead or self._parser is not None
        self._exchange, exchange.connection = exchange, self
        self._parser = httptools.HttpResponseParser(self)
        self._bytes_received = self._headers_complete = self._has_length = self._complete = False
        request = exchange.request
        if request.patient:
            self._owner.read_batcher.add_patient(self)
        head = f"{request.method} {request.path} HTTP/1.1\r\n{self._owner.head}"
        if request.method == "POST":
            head += f"Content-Type: {request.content_type}\r\nContent-Length: {len(request.body)}\r\n"
        if request.patient:
            # The end of the connection ends the wait; not all engines close it themselves after a stream.
            head += "Connection: close\r\n"
        self._unsent = memoryview(b"".join((head.encode(), b"\r\n", request.body)))
        if self.opened:
            self._write()
        else:
            # Reported from the loop, not from inside the caller's own call.
            self._loop.call_later(0.0, lambda: self._break(os.strerror(self._connect_error)))

    def fileno(self) -> int:
        """Return the socket's descriptor, -1 once it is closed."""
        return self._fd

    def set_low_water(self, size: int) -> None:
        """Become readable once ``size`` bytes have arrived, or the end of the response."""
        if self._fd >= 0:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def watch(self, on: bool) -> None:
        """Let the loop read it when there is something, or leave that to the caller of :meth:`read`."""
        if self._fd >= 0:
            self._loop.on_readable(self._fd, self.read if on else None)

    def _write(self) -> None:
        if self._fd < 0:
            return
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            self._unsent = memoryview(b"")  # an empty slice would keep the whole request in memory
        except BlockingIOError:
            self._loop.on_writable(self._fd, self._write)
            return
        except OSError:
            # The engine may have answered before it closed the connection: reading shows this.
            self._unsent = memoryview(b"")
        self._loop.on_writable(self._fd, None)

    def read(self) -> None:
        """Read what has arrived, at most one buffer of it."""
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
            self._end_of_connection()
            return
        if self._parser is None or self._exchange is None:
            self.close()  # the engine sent something without being asked
            return
        self._bytes_received = True
        self._owner.read_batcher.count_read(self)
        try:
            self._parser.feed_data(buffer[:size])
        except httptools.HttpParserCallbackError as problem:
            self._crash(problem.__context__ or problem)
            return
        except httptools.HttpParserError as problem:
            self._malformed(str(problem))
            return
        if self._complete:
            self._finish()

    def drain(self) -> None:
        """Read everything that a dead engine had sent."""
        for _ in range(MAX_DRAIN_READS):
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

    # Called by the parser.

    def on_header(self, name: bytes, _value: bytes) -> None:
        """Note a header that says how the response ends."""
        if name.lower() in _LENGTH_HEADERS:
            self._has_length = True

    def on_headers_complete(self) -> None:
        """Pass on the status."""
        if self._exchange is not None and self._parser is not None:
            self._headers_complete = True
            self._exchange.handler.began(self._parser.get_status_code())

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body."""
        if self._exchange is not None:
            self._exchange.handler.data(body)

    def on_message_complete(self) -> None:
        """Note that the response is complete."""
        self._complete = True
        self._keep_alive = self._parser is not None and self._parser.should_keep_alive()

    # Ends of a response.

    def _end_of_connection(self) -> None:
        if self._exchange is not None and self._headers_complete and not self._has_length:
            self._keep_alive = False
            self._finish(until_close=True)
        else:
            self._break("the engine closed the connection")

    def _finish(self, until_close: bool = False) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        exchange.connection = None
        self._owner.read_batcher.remove(self)
        if self._keep_alive and not self._unsent and not exchange.request.streamed:
            self._owner.keep(self)
        else:
            # The answer leaves first: closing and opening a connection take as long as the answer's way through this
            # process.
            self._loop.call_last(self._replace)
        try:
            exchange.handler.ended(until_close)
        except Exception as error:  # noqa: BLE001 - a programming error ends one request, not the worker
            exchange.handler.crashed(error)

    def _replace(self) -> None:
        self.close()
        self._owner.connect_ahead()

    def _break(self, reason: str) -> None:
        send_again = self._reused and not self._bytes_received
        exchange = self._close_and_take_exchange()
        if exchange is None:
            return
        if send_again and self._owner.open:
            self._owner.send_on_new_connection(exchange)
        else:
            exchange.handler.broke(reason)

    def _malformed(self, reason: str) -> None:
        exchange = self._close_and_take_exchange()
        if exchange is not None:
            exchange.handler.malformed(reason)

    def _crash(self, error: BaseException) -> None:
        exchange = self._close_and_take_exchange()
        if exchange is not None:
            exchange.handler.crashed(error)

    def _close_and_take_exchange(self) -> EngineExchange | None:
        exchange = self._exchange
        self.close()
        return exchange

    def close(self) -> None:
        """Close the socket; no handler is called. Idempotent."""
        if self._fd >= 0:
            self._loop.on_readable(self._fd, None)
            self._loop.on_writable(self._fd, None)
            self._fd = -1
            self._socket.close()
        self._parser = None  # it refers to this connection
        if self._exchange is not None:
            self._exchange.connection = None
            self._exchange = None
        self._owner.forget(self)
