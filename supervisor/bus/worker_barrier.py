"""Waits until everything that workers had sent was read, so that an answer is not about an earlier moment.

A client that has its answer may ask for its figures through a gateway while the worker's report of the end is still on
its way here: the two ways have no common order. A worker answers a ping after everything that it reported before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import msgspec

from protocol.messages.peers import Ping
from protocol.runtime.loop import Loop, Timer
from supervisor.bus.sockets import SupervisorBus

BARRIER_TIMEOUT_S: Final = 1.0
"""How long to wait for a process that does not answer: it may be stopped, or may only have paused for half a second."""


class _Wait(msgspec.Struct):
    workers: set[str]
    callback: Callable[[], None]
    timer: Timer


class WorkerBarrier:
    """The waits in progress. Each callback is called once."""

    def __init__(self, loop: Loop, bus: SupervisorBus) -> None:
        """Start with none."""
        self._loop, self._bus = loop, bus
        self._numbers = itertools.count(-1, -1)
        """Negative, because the other pings have numbers from 0."""
        self._waits: dict[int, _Wait] = {}

    def wait(self, workers: Iterable[str], callback: Callable[[], None]) -> None:
        """Call back when everything that ``workers`` have sent until now was read; at once if there are no workers."""
        asked = set(workers)
        if not asked:
            callback()
            return
        number = next(self._numbers)
        timer = self._loop.call_later(BARRIER_TIMEOUT_S, partial(self._end, number))
        self._waits[number] = _Wait(asked, callback, timer)
        for worker in asked:
            self._bus.send(worker, Ping(number))

    def pong(self, worker: str, number: int) -> None:
        """Take note of a worker's answer. Answers to other pings are ignored."""
        wait = self._waits.get(number)
        if wait is not None:
            wait.workers.discard(worker)
            if not wait.workers:
                self._end(number)

    def forget(self, peer: str) -> None:
        """Wait no longer for a process that has ended. The callbacks follow once its end was handled."""
        for number, wait in self._waits.items():
            if peer in wait.workers:
                wait.workers.remove(peer)
                if not wait.workers:
                    self._loop.call_later(0.0, partial(self._end, number))

    def _end(self, number: int) -> None:
        wait = self._waits.pop(number, None)
        if wait is not None:
            wait.timer.cancel()
            wait.callback()
