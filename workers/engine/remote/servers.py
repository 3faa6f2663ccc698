"""The servers that run one model elsewhere: which of them gets a request, and which gets it if that one fails.

Invariants:

* A request goes to the least busy of the servers that are up; of equally busy ones, to one that has not failed in the last minute,
  in the order of the configuration. So a request that runs alone after a failure gets another server, even if the first is up again.
  If all are down, it is tried nevertheless: they may be up again.
* A server that refuses connections, breaks one, is silent, does not speak HTTP, answers 5xx (except 501 and 508), 401,
  403 or 429, or redirects a request, is down until it answers its health request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from protocol.config.server_address import ServerAddress
from protocol.runtime import logs
from protocol.runtime.loop import Loop, Timer
from workers.backends.engine_request import EngineRequest
from workers.engine.connections.connection_pool import EngineConnectionPool
from workers.engine.connections.exchange import BufferedResponse, EngineExchange, ResponseHandler
from workers.engine.remote.addresses import Found, NameLookup
from workers.engine.remote.exchange import RemoteExchange
from workers.engine.remote.server import RemoteServer
from workers.stream.read_batching import ReadBatcher

MIN_DOWN_S: Final = 1.0
MAX_DOWN_S: Final = 30.0
"""The time between two health requests to a server that is down: the first, and the longest."""
LATELY_S: Final = 60.0
"""How long a server that has failed comes after the others."""
LOOKUP_S: Final = 60.0
"""How long the address of a name is used before it is looked up again."""
PROBE_S: Final = 15.0
"""How long the answer to a health request may take, if ``timeout`` is not shorter."""


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
        on_progress: Callable[[], None],
    ) -> None:
        """Ask nothing yet.

        ``health``: the request to a server that is down; ``is_healthy`` judges the status of the answer. ``timeout``: seconds without a byte after which a request has
        failed. ``on_unreachable`` is called when no server could be reached and no other request is being answered,
        ``on_progress`` now and then while a server takes a request.
        """
        self.loop, self.timeout = loop, timeout
        self._health, self._is_healthy = health, is_healthy
        self._look_up, self._on_unreachable = look_up, on_unreachable
        self.on_progress = on_progress
        self.open = True
        self.read_batcher = ReadBatcher(loop)
        self.servers = [RemoteServer(loop, each, max_kept, key, self.read_batcher) for each in addresses]
        self._log = logs.get_logger()
        self._probes: dict[RemoteServer, Timer] = {}
        self.exchanges: set[RemoteExchange] = set()
        """The requests that have not ended."""

    def send(self, request: EngineRequest, handler: ResponseHandler) -> EngineExchange:
        """Send a request to one of them. ``handler`` is called from the loop."""
        exchange = RemoteExchange(self, request, handler)
        self.exchanges.add(exchange)
        exchange.try_next("there is no server")
        return exchange

    def choose(self, tried: Collection[RemoteServer]) -> RemoteServer | None:
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
        """Ask a server that is down for its health. Until it has answered, or is late, it has a timer in ``_probes``."""
        limit = min(PROBE_S, self.timeout)
        sent: list[EngineExchange] = []

        def answered(status: int, body: bytes) -> None:
            self._probes.pop(server).cancel()
            if status and self._is_healthy(status):
                self._log.info("a remote server is up again", server=server.address.url)
                server.down_for = 0.0
            else:
                self.failed(server, body.decode("utf-8", "replace") if not status else f"it answers {status}")

        def late() -> None:
            for exchange in sent:
                exchange.cancel()
            answered(0, f"no answer within {limit:g} s".encode())

        def ask(_problem: str) -> None:
            if self._probes.get(server) is timer:
                sent.append(server.send(self._health(), BufferedResponse(answered)))

        timer = self._probes[server] = self.loop.call_later(limit, late)
        self.with_address(server, ask)

    def unreachable(self, reason: str) -> None:
        """Report that a request reached no server. While other requests are being answered, the servers are not given up."""
        if not any(each.running for each in self.servers):
            self.loop.call_later(0.0, lambda: self._on_unreachable(reason))

    def forget(self, exchange: RemoteExchange) -> None:
        """Take note that a request has ended."""
        self.exchanges.discard(exchange)

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


EnginePool = EngineConnectionPool | RemoteServers
"""What carries requests to an engine."""
