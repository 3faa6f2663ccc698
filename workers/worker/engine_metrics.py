"""Reads an engine's ``/metrics``, for a supervisor that does not wait long.

Invariant: at most one such request is at the engine, however often it is requested, so a hung engine collects none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from protocol.messages.metrics import MetricsCollected
from protocol.runtime.loop import Loop, Timer
from workers.backends.base import Backend
from workers.engine.connections.exchange import BufferedResponse
from workers.engine.remote.servers import EnginePool

ENGINE_DEADLINE_S: Final = 0.15
"""Less than the supervisor's waiting time (``supervisor/metrics/collection.py``)."""
MAX_METRICS_BYTES: Final = 256 * 1024

Answer = Callable[[MetricsCollected, bytes], None]


class EngineMetricsReader:
    """Reads the metrics of one engine."""

    def __init__(self, loop: Loop, backend: Backend, pool: EnginePool, answer: Answer) -> None:
        """Answer each :meth:`read` with ``answer``, once."""
        self._loop, self._pool, self._answer = loop, pool, answer
        self._request = backend.metrics()
        self._waiting: list[int] = []
        """Numbers of the collections that wait for the request that is at the engine."""
        self._timer: Timer | None = None
        self._asking = False

    def read(self, number: int) -> None:
        """Answer collection ``number``, at the latest after :data:`ENGINE_DEADLINE_S`."""
        if self._request is None:
            self._answer(MetricsCollected(number), b"")
            return
        self._waiting.append(number)
        if self._timer is None:
            self._timer = self._loop.call_later(ENGINE_DEADLINE_S, self._too_late)
        if not self._asking:
            self._asking = True
            self._pool.send(self._request, BufferedResponse(self._arrived))

    def _arrived(self, status: int, body: bytes) -> None:
        self._asking = False
        self._answer_all(body if status == 200 and len(body) <= MAX_METRICS_BYTES else None)

    def _too_late(self) -> None:
        self._answer_all(None)

    def _answer_all(self, body: bytes | None) -> None:
        waiting, self._waiting = self._waiting, []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for number in waiting:
            self._answer(MetricsCollected(number, late=body is None), body or b"")
