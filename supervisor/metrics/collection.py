"""Asks gateways and workers for their reports, all at once, and waits only a moment for each.

A gateway reports the requests that it has counted. A worker reports the ends that it kept back, and its engine's answer
under ``/metrics``. A process that is stopped, or an engine that hangs, is missing from the result, but delays nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from protocol.messages.metrics import CollectMetrics
from protocol.runtime.loop import Loop, Timer
from supervisor.bus.sockets import SupervisorBus

COLLECTION_TIMEOUT_S: Final = 0.2

OnCollected = Callable[[dict[str, bytes]], None]
"""Gets the answers that came in time: peer → its engine's metrics, empty if there are none."""


class _Collection(msgspec.Struct):
    missing: set[str]
    answers: dict[str, bytes]
    callback: OnCollected
    timer: Timer


class MetricsCollections:
    """The collections in progress. Each callback is called once."""

    def __init__(self, loop: Loop, bus: SupervisorBus) -> None:
        """Start with none."""
        self._loop, self._bus = loop, bus
        self._numbers = itertools.count(1)
        self._collections: dict[int, _Collection] = {}

    def collect(self, peers: Iterable[str], callback: OnCollected) -> None:
        """Ask ``peers``, and call back when all have answered, or after :data:`COLLECTION_TIMEOUT_S`."""
        asked = set(peers)
        if not asked:
            callback({})
            return
        number = next(self._numbers)
        timer = self._loop.call_later(COLLECTION_TIMEOUT_S, lambda: self._end(number))
        self._collections[number] = _Collection(asked, {}, callback, timer)
        for peer in asked:
            self._bus.send(peer, CollectMetrics(number))

    def answered(self, peer: str, number: int, engine: bytes | None) -> None:
        """Take an answer; None: the engine's is missing. A late answer is ignored."""
        collection = self._collections.get(number)
        if collection is None or peer not in collection.missing:
            return
        collection.missing.discard(peer)
        if engine is not None:
            collection.answers[peer] = engine
        if not collection.missing:
            self._end(number)

    def _end(self, number: int) -> None:
        collection = self._collections.pop(number, None)
        if collection is not None:
            collection.timer.cancel()
            collection.callback(collection.answers)
