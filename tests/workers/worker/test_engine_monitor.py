"""When the monitors of an engine read what the engine has used, and that they still end one that hangs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from protocol.runtime.loop import Loop
from workers.engine.process_usage import ProcessUsage
from workers.worker.engine_monitor import MEMORY_CHECK_INTERVAL_S, EngineMonitor, MemoryMonitor

SILENCE_S = 8.0
PERIOD_S = 1.0


class EngineStandIn:
    """Counts the readings, and notes the signals."""

    def __init__(self) -> None:
        self.readings = 0
        self.signals: list[int] = []
        self.resident = 0
        self.used = ProcessUsage(1.0)

    def usage(self) -> ProcessUsage:
        self.readings += 1
        return self.used

    def resident_of_tree(self) -> int:
        return self.resident

    def signal(self, number: int) -> None:
        self.signals.append(number)

    def watch_memory_kills(self) -> None:
        pass


class Monitored:
    """The monitors of an engine that is ready, with a clock of their own."""

    def __init__(self, limit: int = 0) -> None:
        self.time = 0.0
        self.busy = False
        self.hung = 0
        self.measured: list[bool] = []
        """Whether the engine was at work, for each time that its memory was asked for."""
        self.exceeded: list[int] = []
        self.loop = Loop(lambda: self.time)
        self.engine = EngineStandIn()
        engine: Any = self.engine
        memory = MemoryMonitor(self.loop, engine, limit, self.exceeded.append, self._measure)
        self.monitor = EngineMonitor(self.loop, engine, SILENCE_S, True, lambda: self.busy, self._hung, memory.wake)

    def _hung(self) -> None:
        self.hung += 1

    def _measure(self) -> bool:
        self.measured.append(self.busy)
        return self.busy

    def begin(self) -> None:
        """Give the engine work."""
        self.busy = True
        self.monitor.wake()

    def wait(self, seconds: float) -> None:
        """Let time pass, in steps of half the shortest period."""
        end = self.time + seconds
        while self.time < end:
            self.time += MEMORY_CHECK_INTERVAL_S / 2
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
    assert monitored.engine.readings == 3
    monitored.busy = False
    monitored.wait(3 * PERIOD_S)
    assert monitored.engine.readings == 3


def test_the_memory_of_an_engine_is_measured_four_times_a_second_while_it_works(monitored: Monitored) -> None:
    """In a second, a request may take a gigabyte, and the kernel end the engine."""
    monitored.wait(PERIOD_S)
    for _ in range(2):
        monitored.measured.clear()
        monitored.begin()
        monitored.begin()
        monitored.wait(PERIOD_S)
        assert monitored.measured == [True] * 4
        monitored.busy = False
        monitored.wait(PERIOD_S)
        assert monitored.measured == [True] * 4 + [False]


def test_an_engine_over_its_limit_is_ended_once() -> None:
    monitored = Monitored(limit=100)
    with closing(monitored.loop):
        monitored.wait(PERIOD_S)
        monitored.engine.resident = 101
        monitored.wait(PERIOD_S)
        monitored.begin()
        monitored.wait(PERIOD_S)
    assert (monitored.exceeded, monitored.engine.signals) == ([101], [signal.SIGKILL])


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
