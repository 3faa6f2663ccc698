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
import ssl
from typing import Final, Protocol

import httptools

from protocol.runtime.loop import Loop
from workers.engine.connections.engine_socket import CONNECTING, EngineSocket, is_empty
from workers.engine.connections.exchange import EngineExchange, request_bytes
from workers.engine.connections.response_reader import ResponseReader
from workers.engine.connections.tls_socket import TlsSocket
from workers.stream.read_batching import ReadBatcher

MAX_DRAIN_READS: Final = 100_000


class ConnectionOwner(Protocol):
    """The pool that opens connections and keeps them (``connection_pool.py``)."""

    loop: Loop
    head: str
    open: bool
    buffer: memoryview
    read_batcher: ReadBatcher
    keeps_streams: bool

    def open_socket(self) -> tuple[EngineSocket, int]:
        """Open a non-blocking socket and begin to connect; return it with the error number, 0 or one of ``CONNECTING``.

        Raises OSError.
        """

    def path_of(self, path: str) -> str:
        """Return the path of a request at this engine."""

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
        self._socket: EngineSocket
        self._fd = -1
        """The descriptor of ``_socket``, -1 while there is no open socket."""
        self._exchange: EngineExchange | None = None
        self._unsent = memoryview(b"")
        self.sent_at = 0.0
        self._reader: ResponseReader | None = None
        """Reads the response to the present request, or has read that to the last one."""
        self._ahead = ahead
        self._reused = False
        self._send_problem = ""
        """What went wrong when something was sent: a refused connection shows there first."""
        self._connect_error = self._connect()

    def _connect(self) -> int:
        """Begin to connect; return the error number, which is one of ``CONNECTING`` if there is no error yet."""
        try:
            self._socket, error = self._owner.open_socket()
        except OSError as problem:
            return problem.errno or errno.EIO
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._loop.on_readable(self._socket.fileno(), self.read)
        except OSError as problem:
            self._socket.close()
            return problem.errno or errno.EIO
        self._fd = self._socket.fileno()
        return error

    @property
    def connected(self) -> bool:
        """See :class:`~workers.engine.connections.exchange.ExchangeConnection`."""
        try:
            self._socket.getpeername()
        except (OSError, AttributeError):
            return False
        return True

    @property
    def opened(self) -> bool:
        """Whether the connection exists or may come to exist."""
        return self._connect_error in CONNECTING

    def send(self, exchange: EngineExchange) -> None:
        """Start an exchange; the previous one has ended."""
        self._reused = self._ahead or self._reader is not None
        self._exchange, exchange.connection = exchange, self
        self._reader = ResponseReader(exchange)
        request = exchange.request
        if request.patient:
            self._owner.read_batcher.add_patient(self)
        self._unsent = memoryview(request_bytes(request, self._owner.path_of(request.path), self._owner.head))
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
                self.sent_at = self._loop.now()
            self._unsent = memoryview(b"")  # an empty slice would keep the whole request in memory
        except BlockingIOError:
            waits = isinstance(self._socket, TlsSocket) and self._socket.waits_for_peer
            self._loop.on_writable(self._fd, None if waits else self._write)
            return
        except ssl.SSLError as problem:
            self._break(getattr(problem, "verify_message", "") or problem.reason or "the encryption failed")
            return
        except OSError as problem:
            # The engine may have answered before it closed the connection: reading shows this.
            self._send_problem = problem.strerror or ""
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
            if self._unsent and isinstance(self._socket, TlsSocket):
                self._write()  # the other side has answered the handshake
            return
        except OSError as problem:
            self._break(problem.strerror or "connection lost")
            return
        if not size:
            self._end_of_connection()
            return
        if self._reader is None or self._exchange is None:
            self.close()  # the engine sent something without being asked
            return
        self._parse(self._reader, buffer[:size])
        if isinstance(self._socket, TlsSocket) and self._fd >= 0 and self._socket.pending:
            self.read()

    def _parse(self, reader: ResponseReader, data: memoryview) -> None:
        self._owner.read_batcher.count_read(self)
        try:
            reader.feed(data)
        except httptools.HttpParserCallbackError as problem:
            self._crash(problem.__context__ or problem)
            return
        except httptools.HttpParserError as problem:
            self._malformed(str(problem))
            return
        if reader.complete:
            self._finish(keep=reader.keep_alive)

    def drain(self) -> None:
        """Read everything that a dead engine had sent."""
        for _ in range(MAX_DRAIN_READS):
            if self._fd < 0 or self._exchange is None:
                return
            before = self._fd
            if is_empty(self._socket):
                return
            self.read()
            if before != self._fd:
                return

    # Ends of a response.

    def _end_of_connection(self) -> None:
        if self._reader is not None and self._reader.until_close:
            self._finish(keep=False, until_close=True)
        else:
            self._break(self._send_problem or "the engine closed the connection")

    def _finish(self, *, keep: bool, until_close: bool = False) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        exchange.connection = None
        if self._reader is not None:
            self._reader.close()  # it refers to the request
        self._owner.read_batcher.remove(self)
        if keep and not self._unsent and (self._owner.keeps_streams or not exchange.request.streamed):
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
        send_again = self._reused and self._reader is not None and not self._reader.begun
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
        if self._reader is not None:
            self._reader.close()
        if self._exchange is not None:
            self._exchange.connection = None
            self._exchange = None
        self._owner.forget(self)
