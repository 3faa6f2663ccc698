"""Connections to an engine that need not wake this process for every piece of their answers.

A patient one belongs to an answer that nobody reads along: it wakes at a few kilobytes or at its end.  A settled
one belongs to a stream whose first token is out: while very many pieces come, all of those are read in ticks.
"""

from __future__ import annotations

import contextlib
import select
from typing import Final, Protocol

from protocol.runtime.loop import Loop, Timer
from workers.stream.read_batching_policy import MIN_STREAMS, ReadBatchingPolicy

LOW_WATER_BYTES: Final = 4096
"""Bytes that a connection which nobody reads along waits for before it wakes us; its end wakes us in any case."""
LOW_WATER_POLL_S: Final = 0.02
"""How often patient connections are read all the same: an engine may keep them open after its answer."""


class BatchedSource(Protocol):
    """A connection, as far as this uses it."""

    def fileno(self) -> int:
        """Return its descriptor."""

    def read(self) -> None:
        """Read what there is, if there is anything."""

    def wake_at(self, size: int) -> None:
        """Be readable when ``size`` bytes are there, or the end."""

    def wake(self, on: bool) -> None:
        """Wake the loop when it is readable, or leave that to whoever reads it in ticks."""


class ReadBatcher:
    """The patient and the settled connections of one engine."""

    def __init__(self, loop: Loop) -> None:
        """There are none."""
        self._loop = loop
        self._patient: set[BatchedSource] = set()
        self._settled: dict[BatchedSource, int] = {}
        """And their descriptors."""
        self._policy = ReadBatchingPolicy()
        self._looking: Timer | None = None
        self._batch_epoll: select.epoll | None = None
        """While there are ticks: the settled ones, which wake nobody."""
        self._members: dict[int, BatchedSource] = {}

    def wait(self, source: BatchedSource) -> None:
        """Read a patient connection every now and then."""
        source.wake_at(LOW_WATER_BYTES)
        self._patient.add(source)
        if self._looking is None:
            self._looking = self._loop.call_later(LOW_WATER_POLL_S, self._look)

    def _look(self) -> None:
        self._looking = None
        for source in list(self._patient):
            source.read()
        if self._patient:
            self._looking = self._loop.call_later(LOW_WATER_POLL_S, self._look)

    def settle(self, source: BatchedSource) -> None:
        """Let a stream be read in ticks while there are ticks."""
        fd = self._settled[source] = source.fileno()
        if self._batch_epoll is not None:
            self._join(self._batch_epoll, source, fd)

    def _join(self, batch_epoll: select.epoll, source: BatchedSource, fd: int) -> None:
        source.wake(on=False)
        batch_epoll.register(fd, select.EPOLLIN)
        self._members[fd] = source

    def came(self, source: BatchedSource) -> None:
        """A piece of an answer came."""
        if len(self._settled) < MIN_STREAMS or source not in self._settled:
            return
        if self._policy.piece(self._loop.now()):
            self._batch_epoll = select.epoll()
            for each, fd in self._settled.items():
                self._join(self._batch_epoll, each, fd)
            self._loop.call_later(self._policy.pause, self._tick)

    def _tick(self) -> None:
        batch_epoll = self._batch_epoll
        if batch_epoll is None:
            return
        for fd, _ in batch_epoll.poll(0):
            member = self._members.get(fd)
            if member is not None:
                member.read()
        if len(self._settled) >= MIN_STREAMS and self._policy.tick(self._loop.now(), len(self._settled)):
            self._loop.call_later(self._policy.pause, self._tick)
            return
        self._policy = ReadBatchingPolicy()
        self._batch_epoll = None
        batch_epoll.close()
        self._members.clear()
        for source in self._settled:
            source.wake(on=True)

    def leave(self, source: BatchedSource) -> None:
        """Its answer has ended, or it was closed. Idempotent."""
        self._patient.discard(source)
        fd = self._settled.pop(source, None)
        if fd is not None and self._batch_epoll is not None:
            del self._members[fd]
            # One that was closed has left by itself.
            with contextlib.suppress(OSError):
                self._batch_epoll.unregister(fd)
