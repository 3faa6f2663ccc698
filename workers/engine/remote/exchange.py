"""One request to a model that runs elsewhere, until one of its servers has answered it, or all have failed.

Invariants:

* As long as nothing of an answer was passed on, a failed request goes to the next server, to each at most once. Afterwards, a
  connection that breaks is the end of the request, and an error.
* Each server has a short time to accept a connection, its name and its encryption included, and then ``timeout`` between two
  bytes of its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Protocol

from protocol.runtime.loop import Loop, Timer
from workers.backends.engine_request import EngineRequest
from workers.engine.connections.exchange import EngineExchange, ResponseHandler
from workers.engine.remote.server import RemoteServer
from workers.stream.read_batching import ReadBatcher

CONNECT_S: Final = 5.0
"""How long it may take until a connection can be used."""
_ANOTHER_MAY: Final = frozenset({401, 403, 404, 429})
"""Statuses of errors below 500 that another server may not answer. After 404, the server is not down: its list of models differs."""
_FINAL: Final = frozenset({501, 508})
"""Statuses from 500 on that are the same with every server: it cannot do this, or the request goes round in a loop."""


class ExchangeOwner(Protocol):
    """The servers of a model (``servers.py``)."""

    loop: Loop
    timeout: float
    open: bool
    on_progress: Callable[[], None]
    read_batcher: ReadBatcher

    def choose(self, tried: Collection[RemoteServer]) -> RemoteServer | None:
        """Return the server that gets a request next, None if all have had it."""

    def with_address(self, server: RemoteServer, then: Callable[[str], None]) -> None:
        """Call ``then`` when the address of a server is known, with what went wrong, if anything."""

    def failed(self, server: RemoteServer, reason: str) -> None:
        """Note that a server could not answer."""

    def unreachable(self, reason: str) -> None:
        """Take note that a request reached no server."""

    def forget(self, exchange: RemoteExchange) -> None:
        """Take note that a request has ended."""


class RemoteExchange(EngineExchange):
    """One request. It is the handler of the exchange with each of the servers."""

    def __init__(self, servers: ExchangeOwner, request: EngineRequest, client: ResponseHandler) -> None:
        """Ask none yet. ``client`` gets the answer."""
        super().__init__(servers.read_batcher, request, self)
        self._servers, self._client = servers, client
        self._server: RemoteServer | None = None
        self._tried: list[RemoteServer] = []
        self._over = self._passing = False
        self._last_at = 0.0
        """When something was last received, or seen to have been sent."""
        self._timer: Timer | None = None

    def try_next(self, reason: str) -> None:
        """Send the request to the next server; without one, tell the client ``reason``."""
        self._leave()
        self.headers = {}
        self._passing = False
        loop = self._servers.loop
        server = self._servers.choose(self._tried) if self._servers.open else None
        if server is None:
            loop.call_later(0.0, lambda: self._give_up(reason))
            return
        self._server = server
        self._tried.append(server)
        server.running += 1
        self._timer = loop.call_later(self._connect_limit, self._check_connected)
        self._servers.with_address(server, lambda problem: self._begin(server, problem))

    @property
    def _connect_limit(self) -> float:
        return min(CONNECT_S, self._servers.timeout)

    def _begin(self, server: RemoteServer, problem: str) -> None:
        if self._over or self._server is not server:
            return
        self._last_at = self._servers.loop.now()
        if problem:
            # Reported from the loop, not from inside the caller's own call.
            self._servers.loop.call_later(0.0, lambda: self.broke(problem) if self._server is server else None)
        else:
            server.begin(self)

    def _check_connected(self) -> None:
        if self.connection is None or not self.connection.connected:
            self._end_silent(f"no connection within {self._connect_limit:g} s")
        else:
            self._check_silence()

    def _check_silence(self) -> None:
        sent_at = self.connection.sent_at if self.connection is not None else 0.0
        if sent_at > self._last_at:
            self._last_at = sent_at
            self._servers.on_progress()
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

    def hold(self, on: bool) -> None:
        """See :meth:`EngineExchange.hold`. A server that is not read is not silent."""
        super().hold(on)
        loop, self._last_at = self._servers.loop, self._servers.loop.now()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if on or self._over else loop.call_later(self._servers.timeout, self._check_silence)

    def cancel(self) -> None:
        """See :meth:`EngineExchange.cancel`."""
        self.forget()
        super().cancel()

    def _failed(self, reason: str) -> str:
        """Note that the present server could not answer; return the reason for administrators."""
        if self._server is None:
            return reason
        self._servers.failed(self._server, reason)
        return f"{self._server.address.url}: {reason}"

    def _may_restart(self) -> bool:
        """Return whether another server may answer from the beginning. If so, the client has forgotten what had come."""
        return self._servers.choose(self._tried) is not None and (not self._passing or self._client.restart())

    # What the connection reports; see :class:`~workers.engine.connections.exchange.ResponseHandler`.

    def began(self, status: int) -> None:
        """Pass on an answer, unless another server may have a better one."""
        self._last_at = self._servers.loop.now()
        others = self._servers.choose(self._tried) is not None
        if status in _ANOTHER_MAY or 300 <= status < 400 or (status >= 500 and status not in _FINAL):
            reason = f"it answers {status}"
            if status != 404 and (others or len(self._tried) > 1):
                self._failed(reason)
            if others:
                super().cancel()
                self._leave()
                self._servers.loop.call_later(0.0, lambda: None if self._over else self.try_next(reason))
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

    def restart(self) -> bool:
        """Return False: only this class tries another server."""
        return False

    def ended(self, until_close: bool = False) -> None:
        """Pass on the end."""
        self.forget()
        self._client.ended(until_close)

    def broke(self, reason: str) -> None:
        """Try the next server, or report that the connection ended before the response did."""
        if self._over:
            return
        shown = self._failed(reason)
        if self._passing and not self._may_restart():
            self.forget()
            self._client.broke(shown)
        else:
            self.try_next(shown)

    def malformed(self, reason: str) -> None:
        """Try the next server, or report one that does not speak HTTP."""
        shown = self._failed(reason)
        if self._may_restart():
            self.try_next(shown)
        else:
            self.forget()
            self._client.malformed(shown)

    def crashed(self, error: BaseException) -> None:
        """Report a programming error of ours."""
        self.forget()
        self._client.crashed(error)

    def forget(self) -> None:
        """End without a word to the client."""
        self._over = True
        self._servers.forget(self)
        self._leave()
