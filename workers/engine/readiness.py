"""From a started engine to a ready one: connect early and often, ask for health, warm up, ask what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from protocol.runtime.loop import Loop, Timer
from workers.backends.base import Backend, EngineFacts, EngineRequest
from workers.engine.connection_pool import EngineConnectionPool
from workers.worker.attempt import failure_in_body

FIRST_POLL_S: Final = 0.006
MAX_POLL_INTERVAL_S: Final = 0.1
POLL_GROWTH: Final = 1.05

OnReady = Callable[[EngineFacts], None]
OnFailed = Callable[[str], None]


class BufferedResponse:
    """Collects a whole answer and hands status and body on; a break is status 0."""

    def __init__(self, then: Callable[[int, bytes], None]) -> None:
        """Call ``then`` once."""
        self._then = then
        self._status = 0
        self._parts: list[bytes] = []

    def began(self, status: int) -> None:
        """See :class:`~workers.engine.connection.ResponseHandler`."""
        self._status = status

    def data(self, piece: bytes) -> None:
        """See :class:`~workers.engine.connection.ResponseHandler`."""
        self._parts.append(piece)

    def ended(self) -> None:
        """See :class:`~workers.engine.connection.ResponseHandler`."""
        self._then(self._status, b"".join(self._parts))

    def broke(self, reason: str) -> None:
        """See :class:`~workers.engine.connection.ResponseHandler`."""
        self._then(0, reason.encode())


class ReadinessProbe:
    """Waits for one engine. Its death ends this from outside with :meth:`cancel`."""

    def __init__(
        self, loop: Loop, client: EngineConnectionPool, backend: Backend, on_ready: OnReady, on_failed: OnFailed
    ) -> None:
        """Begin at once."""
        self._loop, self._client, self._backend = loop, client, backend
        self._on_ready, self._on_failed = on_ready, on_failed
        self._pause = FIRST_POLL_S
        self._timer: Timer | None = loop.call_later(FIRST_POLL_S, self._poll_health)
        self._over = False

    def cancel(self) -> None:
        """Wait no more."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()

    def _ask(self, request: EngineRequest, then: Callable[[int, bytes], None]) -> None:
        def answered(status: int, body: bytes) -> None:
            if not self._over:
                then(status, body)

        self._client.send(request, BufferedResponse(answered))

    def _poll_health(self) -> None:
        self._ask(self._backend.health(), self._on_health)

    def _on_health(self, status: int, _body: bytes) -> None:
        if status != 200:
            self._timer = self._loop.call_later(self._pause, self._poll_health)
            self._pause = min(MAX_POLL_INTERVAL_S, self._pause * POLL_GROWTH)
            return
        warm_up = self._backend.warm_up()
        if warm_up is None:
            self._on_warm_up(200, b"")
        else:
            self._ask(warm_up, self._on_warm_up)

    def _on_warm_up(self, status: int, body: bytes) -> None:
        if status == 0:
            self._on_health(status, body)  # most likely it died of it: its death will say how
            return
        if status >= 400 or failure_in_body(body, self._backend.program) is not None:
            self._fail(f"its warm-up was answered with {status}: {body[:300].decode('utf-8', 'replace')}")
            return
        self._ask(self._backend.about(), self._on_about)

    def _on_about(self, status: int, body: bytes) -> None:
        if status == 0:
            self._on_health(status, body)
            return
        try:
            facts = self._backend.facts(body)
        except ValueError as problem:
            self._fail(f"what it says about itself makes no sense ({status}): {problem}")
            return
        self._over = True
        self._on_ready(facts)

    def _fail(self, reason: str) -> None:
        self._over = True
        self._on_failed(reason)
