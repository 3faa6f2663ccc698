"""Watches one engine process: ends it if it hangs (``engine_watchdog.py`` decides) or uses too much memory.

Invariants: an engine is judged only while it has work. After :meth:`EngineMonitor.stop` or :meth:`MemoryMonitor.stop`
no signal is sent, so a reused process id is safe.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Final

from protocol.runtime.loop import Loop, Timer
from workers.engine.remote.engine import Engine
from workers.worker.engine_watchdog import Verdict, Watchdog

MEMORY_CHECK_INTERVAL_S: Final = 0.25
"""A looping template was seen to allocate one gigabyte a second."""


class EngineMonitor:
    """Watches one engine while it loads, or while it has requests."""

    def __init__(
        self,
        loop: Loop,
        engine: Engine,
        silence: float,
        by_usage: bool,
        busy: Callable[[], bool],
        on_hung: Callable[[], None],
        on_wake: Callable[[], None] = lambda: None,
    ) -> None:
        """Do nothing before :meth:`wake`, which also calls ``on_wake``. ``by_usage``: processor time and bytes read count as progress."""
        self._loop, self._engine, self._by_usage = loop, engine, by_usage
        self._busy, self._on_hung, self._on_wake = busy, on_hung, on_wake
        self._watchdog = Watchdog(silence)
        self._timer: Timer | None = None
        self._stopped = False

    def progress(self) -> None:
        """Take note of output of the engine."""
        self._watchdog.progress(self._loop.now())

    def wake(self) -> None:
        """Begin to watch: the engine was given work.

        The first reading is taken a period later: most requests end before it, and the engine has only just begun.
        """
        if self._timer is None and not self._stopped:
            self._check_later()
        self._on_wake()

    def stop(self) -> None:
        """Stop watching: the engine has ended, or its load has."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _check_later(self) -> None:
        self._timer = self._loop.call_later(self._watchdog.period(), self._check)

    def _check(self) -> None:
        self._timer = None
        self._engine.watch_memory_kills()
        busy = self._busy()
        usage = self._engine.usage() if busy and self._by_usage else None
        verdict = self._watchdog.judge(self._loop.now(), busy, usage)
        if verdict is Verdict.ABORT:
            self._on_hung()
            self._engine.signal(signal.SIGABRT)
        elif verdict is Verdict.KILL:
            self._engine.signal(signal.SIGKILL)
        if busy or self._watchdog.fired:
            self._check_later()


class MemoryMonitor:
    """Looks at an engine's memory while it loads or works, and kills it if its processes together use more than allowed."""

    def __init__(
        self,
        loop: Loop,
        engine: Engine,
        limit: int,
        on_exceeded: Callable[[int], None],
        measure: Callable[[], bool] = lambda: False,
    ) -> None:
        """Check until :meth:`stop`; ``limit`` in bytes, 0 for none.

        ``on_exceeded`` is called with the bytes in use, before the engine is killed. ``measure`` is called at each check. Without a
        limit, checks end when it returns False, until :meth:`wake`.
        """
        self._loop, self._engine, self._limit, self._on_exceeded = loop, engine, limit, on_exceeded
        self._measure = measure
        self._timer: Timer | None = None
        self._stopped = False
        self.wake()

    def wake(self) -> None:
        """Check again: the engine was given work."""
        if self._timer is None and not self._stopped:
            self._timer = self._loop.call_later(MEMORY_CHECK_INTERVAL_S, self._check)

    def stop(self) -> None:
        """Stop checking: the engine has ended."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        self._timer = None
        works = self._measure()
        if self._limit and (used := self._engine.resident_of_tree()) > self._limit:
            self._stopped = True
            self._on_exceeded(used)
            self._engine.signal(signal.SIGKILL)
        elif self._limit or works:
            self.wake()
