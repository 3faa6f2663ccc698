"""Connections to an engine that need not wake this process for every piece of their answers.

A patient one belongs to an answer that nobody reads along: it wakes at a few kilobytes or at its end.  A settled
one belongs to a stream whose first token is out: while very many pieces come, all of those are read in ticks.
"""

from __future__ import annotations

from typing import Final, Protocol

from protocol.loop import Loop, Timer
from workers.pace import CROWD, TICK_S, Pace

PATIENCE: Final = 4096
"""Bytes that a connection which nobody reads along waits for before it wakes us; its end wakes us in any case."""
LOOK_S: Final = 0.02
"""How often patient connections are read all the same: an engine may keep them open after its answer."""
_NEVER: Final = 65_536
"""More bytes than come in a tick."""


class Source(Protocol):
    """A connection, as far as this uses it."""

    def read(self) -> None:
        """Read what there is, if there is anything."""

    def wake_at(self, size: int) -> None:
        """Be readable when ``size`` bytes are there, or the end."""


class Together:
    """The patient and the settled connections of one engine."""

    def __init__(self, loop: Loop) -> None:
        """There are none."""
        self._loop = loop
        self._patient: set[Source] = set()
        self._settled: set[Source] = set()
        self._pace = Pace()
        self._looking: Timer | None = None

    def wait(self, source: Source) -> None:
        """Read a patient connection every now and then."""
        source.wake_at(PATIENCE)
        self._patient.add(source)
        if self._looking is None:
            self._looking = self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._looking = None
        for source in list(self._patient):
            source.read()
        if self._patient:
            self._looking = self._loop.call_later(LOOK_S, self._look)

    def settle(self, source: Source) -> None:
        """Let a stream be read in ticks while there are ticks."""
        self._settled.add(source)
        if self._pace.ticking:
            source.wake_at(_NEVER)

    def came(self, source: Source) -> None:
        """A piece of an answer came."""
        if len(self._settled) >= CROWD and source in self._settled and self._pace.piece(self._loop.now()):
            for each in self._settled:
                each.wake_at(_NEVER)
            self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        for source in list(self._settled):
            source.read()
        if len(self._settled) >= CROWD and self._pace.tick(self._loop.now()):
            self._loop.call_later(TICK_S, self._tick)
            return
        self._pace = Pace()
        for source in self._settled:
            source.wake_at(1)

    def leave(self, source: Source) -> None:
        """Its answer has ended, or it was closed. Idempotent."""
        self._patient.discard(source)
        self._settled.discard(source)
