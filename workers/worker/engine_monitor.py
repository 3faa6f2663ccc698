"""Looks after one engine while it works: asks the watchdog, and does what it says."""

from __future__ import annotations

import signal
from collections.abc import Callable

from protocol.runtime.loop import Loop, Timer
from workers.engine.process import EngineProcess
from workers.worker.watchdog import Verdict, Watchdog


class EngineMonitor:
    """Watches one engine from its first request to its death."""

    def __init__(
        self,
        loop: Loop,
        engine: EngineProcess,
        silence: float,
        by_cpu: bool,
        busy: Callable[[], bool],
        on_hung: Callable[[], None],
    ) -> None:
        """Nothing is looked at before :meth:`wake`. ``by_cpu``: processor time counts as progress."""
        self._loop, self._engine, self._by_cpu = loop, engine, by_cpu
        self._busy, self._on_hung = busy, on_hung
        self._watchdog = Watchdog(silence)
        self._timer: Timer | None = None
        self._over = False

    def progress(self) -> None:
        """The engine said something."""
        self._watchdog.progress(self._loop.now())

    def wake(self) -> None:
        """The engine was given work."""
        if self._timer is None:
            self._look()

    def end(self) -> None:
        """The engine is dead."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if self._over:
            return
        busy = self._busy()
        cpu = self._engine.cpu_seconds() if busy and self._by_cpu else None
        verdict = self._watchdog.look(self._loop.now(), busy, cpu)
        if verdict is Verdict.ABORT:
            self._on_hung()
            self._engine.signal(signal.SIGABRT)
        elif verdict is Verdict.KILL:
            self._engine.signal(signal.SIGKILL)
        if busy or self._watchdog.fired:
            self._timer = self._loop.call_later(self._watchdog.period(), self._look)
