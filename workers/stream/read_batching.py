"""Connections to an engine that need not wake this process for every piece of their responses.

A *patient* connection belongs to a response whose client wants no stream: it wakes the loop after a few kilobytes or at
its end. A *stream* joins after its first token: while very many pieces arrive, a timer reads all streams together.

Invariants:

* A connection wakes the loop itself, or a timer reads it.
* A stream's first token is never delayed.
* A descriptor leaves the batch epoll before its number can be used again.
"""

from __future__ import annotations

import contextlib
import select
from typing import Final, Protocol

from protocol.runtime.loop import Loop, Timer

LOW_WATER_BYTES: Final = 4096
"""Bytes at which a patient connection wakes the loop; its end always wakes it."""
LOW_WATER_POLL_S: Final = 0.02
"""How often patient connections are read anyway: an engine may keep them open after its response."""
MIN_TICK_S: Final = 0.001
MAX_TICK_S: Final = 0.004
TICK_SHARE: Final = 0.4
"""The length of a tick, as a fraction of the time between two tokens of a stream."""
MIN_STREAMS: Final = 4
"""With fewer streams than this, a tick is not worthwhile."""
WINDOW: Final = 64
"""How many pieces (before) or ticks (while ticking) are counted for each decision."""
BUSY_WINDOW_S: Final = 0.03
"""If a window of pieces arrives within this time (two thousand a second), waking for each is too expensive."""
MIN_PIECES_PER_TICK: Final = 1.0
"""With fewer pieces per tick than this, waking for each piece is cheaper again."""


class ReadBatchingPolicy:
    """Counts pieces, and decides whether to read streams together: only while very many pieces arrive. Pure.

    A fast engine with many streams writes each token of each stream to its own socket. Each token wakes this process,
    then a gateway, then a client: on few processors, the switching costs more than the tokens. Then the streams are read
    together at each tick of a timer, which is short compared with the time between two tokens of one stream. A stream
    that has not shown its first token is never delayed; nor are streams of a slower engine.
    """

    def __init__(self) -> None:
        """Start without ticks."""
        self.ticking = False
        self.pause = MIN_TICK_S
        """Seconds until the next tick."""
        self._pieces = 0
        self._ticks = 0
        self._since = 0.0

    def count_piece(self, now: float) -> bool:
        """Count a piece of a stream; return whether to begin ticking."""
        self._pieces += 1
        if self.ticking or self._pieces < WINDOW:
            return False
        self.ticking = now - self._since < BUSY_WINDOW_S
        self._begin_window(now)
        return self.ticking

    def count_tick(self, now: float, streams: int) -> bool:
        """Count a tick at which ``streams`` streams were read; return whether to go on ticking."""
        self._ticks += 1
        if self._ticks >= WINDOW:
            self.ticking = self._pieces >= MIN_PIECES_PER_TICK * self._ticks
            token_interval = (now - self._since) * streams / max(1, self._pieces)
            self.pause = min(MAX_TICK_S, max(MIN_TICK_S, TICK_SHARE * token_interval))
            self._begin_window(now)
        return self.ticking

    def _begin_window(self, now: float) -> None:
        self._pieces = self._ticks = 0
        self._since = now


class BatchedSource(Protocol):
    """The part of a connection that this module uses."""

    def fileno(self) -> int:
        """Return its descriptor."""

    def read(self) -> None:
        """Read what there is, if there is anything."""

    def set_low_water(self, size: int) -> None:
        """Become readable once ``size`` bytes have arrived, or the end of the response."""

    def watch(self, on: bool) -> None:
        """Wake the loop when it is readable, or leave that to a timer."""


class ReadBatcher:
    """The patient connections and the streams of one engine."""

    def __init__(self, loop: Loop) -> None:
        """Start without connections."""
        self._loop = loop
        self._patient: set[BatchedSource] = set()
        self._streams: dict[BatchedSource, int] = {}
        """Streams → their descriptors."""
        self._policy = ReadBatchingPolicy()
        self._patient_timer: Timer | None = None
        self._batch_epoll: select.epoll | None = None
        """While streams are read together: an epoll of their descriptors, which the loop then does not watch."""
        self._batched: dict[int, BatchedSource] = {}

    def add_patient(self, source: BatchedSource) -> None:
        """Wake the loop rarely for this connection."""
        source.set_low_water(LOW_WATER_BYTES)
        self._patient.add(source)
        if self._patient_timer is None:
            self._patient_timer = self._loop.call_later(LOW_WATER_POLL_S, self._read_patient)

    def _read_patient(self) -> None:
        self._patient_timer = None
        for source in list(self._patient):
            source.read()
        if self._patient and self._patient_timer is None:
            self._patient_timer = self._loop.call_later(LOW_WATER_POLL_S, self._read_patient)

    def add_stream(self, source: BatchedSource) -> None:
        """Let a stream be read together with the others while that is worthwhile."""
        fd = self._streams[source] = source.fileno()
        if self._batch_epoll is not None:
            self._add_to_batch(self._batch_epoll, source, fd)

    def _add_to_batch(self, batch_epoll: select.epoll, source: BatchedSource, fd: int) -> None:
        source.watch(on=False)
        batch_epoll.register(fd, select.EPOLLIN)
        self._batched[fd] = source

    def count_read(self, source: BatchedSource) -> None:
        """Take note that a piece of a response was read."""
        if len(self._streams) < MIN_STREAMS or source not in self._streams:
            return
        if self._policy.count_piece(self._loop.now()):
            try:
                self._batch_epoll = select.epoll()
            except OSError:
                # No descriptor is left, so the streams are read one by one. The piece that was read must not be lost.
                self._policy = ReadBatchingPolicy()
                return
            for each, fd in self._streams.items():
                self._add_to_batch(self._batch_epoll, each, fd)
            self._loop.call_later(self._policy.pause, self._read_batch)

    def _read_batch(self) -> None:
        batch_epoll = self._batch_epoll
        if batch_epoll is None:
            return
        for fd, _ in batch_epoll.poll(0):
            source = self._batched.get(fd)
            if source is not None:
                source.read()
        if len(self._streams) >= MIN_STREAMS and self._policy.count_tick(self._loop.now(), len(self._streams)):
            self._loop.call_later(self._policy.pause, self._read_batch)
            return
        self._policy = ReadBatchingPolicy()
        self._batch_epoll = None
        batch_epoll.close()
        self._batched.clear()
        for source in self._streams:
            source.watch(on=True)

    def hold(self, source: BatchedSource, on: bool) -> None:
        """Read no more of a connection, so that its other side must soon stop to send; or go on."""
        self.remove(source)
        source.watch(on=not on)

    def remove(self, source: BatchedSource) -> None:
        """Forget a connection whose response has ended, or that was closed. Idempotent."""
        self._patient.discard(source)
        fd = self._streams.pop(source, None)
        if fd is not None and self._batch_epoll is not None:
            del self._batched[fd]
            # A closed descriptor has left the epoll by itself.
            with contextlib.suppress(OSError):
                self._batch_epoll.unregister(fd)
