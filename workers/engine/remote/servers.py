"""The servers that run one model elsewhere: which of them gets a request, and which gets it if that one fails.

Invariants:

* A request goes to the least busy of the servers that are up; of equally busy ones, to one that has not failed in the last minute,
  in the order of the configuration. So a request that runs alone after a failure gets another server, even if the first is up again.
  If all are down, it is tried nevertheless: they may be up again.
* Before anything of an answer was passed on, a failed request goes to the next server, to each at most once. Afterwards, a
  connection that breaks is the end of the request, and an error.
* A server that refuses connections, breaks one, is silent, or answers 5xx, 401, 403 or 429 to a request is down until it answers its
  health request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from protocol.config.server_address import ServerAddress
from protocol.runtime import logs
from protocol.runtime.loop import Loop, Timer
from workers.backends.engine_request import EngineRequest
from workers.engine.connections.connection import EngineConnection
from workers.engine.connections.connection_pool import EngineConnectionPool
from workers.engine.connections.exchange import BufferedResponse, EngineExchange, ResponseHandler
from workers.engine.remote.addresses import Found, NameLookup
from workers.engine.remote.server import RemoteServer
from workers.stream.read_batching import ReadBatcher

CONNECT_S: Final = 5.0
"""How long a connection may take to be accepted."""
MIN_DOWN_S: Final = 1.0
MAX_DOWN_S: Final = 30.0
"""The time between two health requests to a server that is down: the first, and the longest."""
LATELY_S: Final = 60.0
"""How long a server that has failed comes after the others."""
LOOKUP_S: Final = 60.0
"""How long the address of a name is used before it is looked up again."""
_ANOTHER_MAY: Final = frozenset({401, 403, 429})
"""Statuses below 500 that another server may not answer."""
_FINAL: Final = frozenset({501, 508})
"""Statuses from 500 on that are the same with every server: it cannot do this, or the request goes round in a loop."""


class RemoteServers:
    """The servers of one model. It is used like the :class:`~workers.engine.connections.connection_pool.EngineConnectionPool` of an engine."""

    def __init__(
        self,
        loop: Loop,
        addresses: Sequence[ServerAddress],
        health: Callable[[], EngineRequest],
        is_healthy: Callable[[int], bool],
        timeout: float,
        max_kept: int,
        key: str,
        look_up: NameLookup,
        on_unreachable: Callable[[str], None],
    ) -> None:
        """Ask nothing yet.

        ``health``: the request to a server that is down; ``is_healthy`` judges the status of the answer. ``timeout``: seconds without a byte after which a request has
        failed. ``on_unreachable`` is called when no server could be reached and no other request is being answered.
        """
        self.loop, self.timeout = loop, timeout
        self._health, self._is_healthy = health, is_healthy
        self._look_up, self._on_unreachable = look_up, on_unreachable
        self.open = True
        self.read_batcher = ReadBatcher(loop)
        self.servers = [RemoteServer(loop, each, max_kept, key, self.read_batcher) for each in addresses]
        self._log = logs.get_logger()
        self._probes: dict[RemoteServer, Timer] = {}
        self.exchanges: set[_RemoteExchange] = set()
        """The requests that have not ended."""

    def send(self, request: EngineRequest, handler: ResponseHandler) -> EngineExchange:
        """Send a request to one of them. ``handler`` is called from the loop."""
        exchange = _RemoteExchange(self, request, handler)
        self.exchanges.add(exchange)
        exchange.try_next("there is no server")
        return exchange

    def choose(self, tried: Sequence[RemoteServer]) -> RemoteServer | None:
        """Return the server that gets a request next, None if all have had it."""
        rest = [each for each in self.servers if each not in tried]
        since = self.loop.now() - LATELY_S
        return min(rest, key=lambda each: (each.down_for > 0, each.running, max(since, each.failed_at)), default=None)

    def with_address(self, server: RemoteServer, then: Callable[[str], None]) -> None:
        """Call ``then`` when the address of a server is known, with what went wrong, if anything."""
        now = self.loop.now()
        fresh = server.found_at is not None and now - server.found_at < LOOKUP_S
        if server.found is not None and (server.found_at is None or fresh):
            then("")
            return

        def looked_up(found: Found | None, problem: str) -> None:
            if not self.open:
                return
            if found is not None:
                server.found, server.found_at = found, self.loop.now()
            then("" if server.found is not None else problem)

        self._look_up(server.address.host, server.address.port, looked_up)

    def failed(self, server: RemoteServer, reason: str) -> None:
        """Note that a server could not answer: the others get the next requests until it is healthy."""
        server.failed_at = self.loop.now()
        if not server.down_for:
            self._log.warning("a remote server is down", server=server.address.url, reason=reason)
        if server in self._probes or not self.open:
            return
        server.down_for = min(MAX_DOWN_S, 2 * server.down_for or MIN_DOWN_S)
        self._probes[server] = self.loop.call_later(server.down_for, lambda: self._probe(server))

    def _probe(self, server: RemoteServer) -> None:
        del self._probes[server]

        def answered(status: int, body: bytes) -> None:
            if status and self._is_healthy(status):
                self._log.info("a remote server is up again", server=server.address.url)
                server.down_for = 0.0
            else:
                self.failed(server, body.decode("utf-8", "replace") if not status else f"it answers {status}")

        def ask(_problem: str) -> None:
            server.send(self._health(), BufferedResponse(answered))

        self.with_address(server, ask)

    def unreachable(self, reason: str) -> None:
        """Report that a request reached no server. While other requests are being answered, the servers are not given up."""
        if not any(each.running for each in self.servers):
            self.loop.call_later(0.0, lambda: self._on_unreachable(reason))

    def drain(self) -> None:
        """Send nothing more."""
        self.close()

    def close(self) -> None:
        """Close all connections; no handler is called."""
        self.open = False
        for timer in self._probes.values():
            timer.cancel()
        self._probes.clear()
        for exchange in list(self.exchanges):
            exchange.forget()
        for server in self.servers:
            server.close()


class _RemoteExchange(EngineExchange):
    """One request, until a server has answered it. It is the handler of the exchange with each of them."""

    def __init__(self, servers: RemoteServers, request: EngineRequest, client: ResponseHandler) -> None:
        super().__init__(servers.read_batcher, request, self)
        self._servers, self._client = servers, client
        self._server: RemoteServer | None = None
        self._tried: list[RemoteServer] = []
        self._over = self._passing = False
        self._last_at = 0.0
        self._timer: Timer | None = None

    def try_next(self, reason: str) -> None:
        """Send the request to the next server; without one, tell the client ``reason``."""
        self._leave()
        self.retry_after = 0.0
        server = self._servers.choose(self._tried) if self._servers.open else None
        if server is None:
            self._servers.loop.call_later(0.0, lambda: self._give_up(reason))
            return
        self._server = server
        self._tried.append(server)
        server.running += 1
        self._servers.with_address(server, lambda problem: self._begin(server, problem))

    def _begin(self, server: RemoteServer, problem: str) -> None:
        if self._over or self._server is not server:
            return
        if problem:
            self._servers.loop.call_later(0.0, lambda: self.broke(problem))
            return
        self._last_at = self._servers.loop.now()
        self._timer = self._servers.loop.call_later(min(CONNECT_S, self._servers.timeout), self._check_connected)
        server.begin(self)

    def _check_connected(self) -> None:
        connection = self.connection
        if isinstance(connection, EngineConnection) and not connection.connected:
            self._end_silent(f"no connection within {min(CONNECT_S, self._servers.timeout):g} s")
        else:
            self._check_silence()

    def _check_silence(self) -> None:
        silent = self._servers.loop.now() - self._last_at
        if silent >= self._servers.timeout:
            self._end_silent(f"nothing came for {self._servers.timeout:g} s")
        else:
            self._timer = self._servers.loop.call_later(self._servers.timeout - silent, self._check_silence)

    def _end_silent(self, reason: str) -> None:
        super().cancel()
        self.broke(reason)

    def _leave(self) -> None:
        """Note that the present server no longer works on it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._server is not None:
            self._server.running -= 1
            self._server = None

    def _give_up(self, reason: str) -> None:
        if not self._over:
            self.forget()
            self._servers.unreachable(reason)
            self._client.broke(reason)

    def cancel(self) -> None:
        """See :meth:`EngineExchange.cancel`."""
        self.forget()
        super().cancel()

    def _shown(self, reason: str) -> str:
        return f"{self._server.address.url}: {reason}" if self._server is not None else reason

    # What the connection reports; see :class:`~workers.engine.connections.exchange.ResponseHandler`.

    def began(self, status: int) -> None:
        """Pass on an answer, unless another server may have a better one."""
        self._last_at = self._servers.loop.now()
        server = self._server
        another = status in _ANOTHER_MAY or (status >= 500 and status not in _FINAL)
        if another and server is not None and len(self._servers.servers) > 1:
            self._servers.failed(server, f"it answers {status}")
            if self._servers.choose(self._tried) is not None:
                super().cancel()
                self._servers.loop.call_later(
                    0.0, lambda: None if self._over else self.try_next(f"it answers {status}")
                )
                return
        self._passing = True
        self._client.began(status)

    def data(self, piece: bytes) -> None:
        """Pass on a part of the body."""
        self._last_at = self._servers.loop.now()
        if self._passing:
            self._client.data(piece)

    def trailer(self, name: bytes, value: bytes) -> None:
        """Pass on a header that follows the body."""
        self._client.trailer(name, value)

    def ended(self, until_close: bool = False) -> None:
        """Pass on the end."""
        self.forget()
        self._client.ended(until_close)

    def broke(self, reason: str) -> None:
        """Try the next server, or report that the connection ended before the response did."""
        if self._over:
            return
        shown = self._shown(reason)
        if self._server is not None:
            self._servers.failed(self._server, reason)
        if self._passing:
            self.forget()
            self._client.broke(shown)
        else:
            self.try_next(shown)

    def malformed(self, reason: str) -> None:
        """Report a server that does not speak HTTP."""
        shown = self._shown(reason)
        self.forget()
        self._client.malformed(shown)

    def crashed(self, error: BaseException) -> None:
        """Report a programming error of ours."""
        self.forget()
        self._client.crashed(error)

    def forget(self) -> None:
        """End without a word to the client."""
        self._over = True
        self._servers.exchanges.discard(self)
        self._leave()


EnginePool = EngineConnectionPool | RemoteServers
"""What carries requests to an engine."""
