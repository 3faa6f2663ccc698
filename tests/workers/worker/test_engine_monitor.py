"""When the monitor of an engine reads what the engine has used, and that it still ends one that hangs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from protocol.runtime.loop import Loop
from workers.engine.process_usage import ProcessUsage
from workers.worker.engine_monitor import EngineMonitor

SILENCE_S = 8.0
PERIOD_S = 1.0


class EngineStandIn:
    """Counts the readings, and notes the signals."""

    def __init__(self) -> None:
        self.readings = 0
        self.signals: list[int] = []
        self.used = ProcessUsage(1.0)

    def usage(self) -> ProcessUsage:
        self.readings += 1
        return self.used

    def signal(self, number: int) -> None:
        self.signals.append(number)

    def watch_memory_kills(self) -> None:
        pass


class Monitored:
    """A monitor with a clock of its own."""

    def __init__(self) -> None:
        self.time = 0.0
        self.busy = False
        self.hung = self.checks_at_work = 0
        self.loop = Loop(lambda: self.time)
        self.engine = EngineStandIn()
        engine: Any = self.engine
        self.monitor = EngineMonitor(self.loop, engine, SILENCE_S, True, lambda: self.busy, self._hung, self._works)

    def _hung(self) -> None:
        self.hung += 1

    def _works(self) -> None:
        self.checks_at_work += 1

    def begin(self) -> None:
        """Give the engine work."""
        self.busy = True
        self.monitor.wake()

    def wait(self, seconds: float) -> None:
        """Let time pass, in steps of half a period."""
        end = self.time + seconds
        while self.time < end:
            self.time += PERIOD_S / 2
            self.loop.run_once(0.0)


@pytest.fixture
def monitored() -> Iterator[Monitored]:
    one = Monitored()
    yield one
    one.loop.close()


def test_a_short_request_of_an_idle_engine_reads_nothing(monitored: Monitored) -> None:
    for _ in range(3):
        monitored.begin()
        monitored.busy = False
        monitored.wait(2 * PERIOD_S)
    assert monitored.engine.readings == 0


def test_an_engine_that_works_for_longer_is_read_once_a_period(monitored: Monitored) -> None:
    monitored.begin()
    monitored.wait(3 * PERIOD_S)
    assert monitored.engine.readings == monitored.checks_at_work == 3
    monitored.busy = False
    monitored.wait(3 * PERIOD_S)
    assert monitored.checks_at_work == 3


def test_a_silent_engine_is_ended_after_the_first_reading_and_the_silence(monitored: Monitored) -> None:
    monitored.begin()
    monitored.wait(SILENCE_S)
    assert monitored.engine.signals == []
    monitored.wait(PERIOD_S)
    assert (monitored.hung, monitored.engine.signals) == (1, [signal.SIGABRT])
    monitored.wait(PERIOD_S)
    assert monitored.engine.signals == [signal.SIGABRT, signal.SIGKILL]


def test_an_engine_that_works_is_not_ended(monitored: Monitored) -> None:
    monitored.begin()
    for _ in range(30):
        monitored.engine.used = ProcessUsage(monitored.engine.used.cpu_seconds + 0.1)
        monitored.wait(PERIOD_S)
    assert monitored.engine.signals == []
