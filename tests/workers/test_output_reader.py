"""An engine's lines: whose they are, and how often this process wakes for them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from protocol.runtime.loop import Loop
from workers.engine.output_reader import OUTPUT_BATCH_DELAY_S, OutputReader

DEADLINE = 5.0


class Log:
    """Keeps lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def bind(self, **_: object) -> Log:
        return self

    def info(self, text: str, request_id: str = "") -> None:
        self.lines.append((text, request_id))


class Stopwatch(Loop):
    """A loop whose time passes when a test says so."""

    time = 0.0

    def now(self) -> float:
        return self.time


class EngineOutput:
    """The writing end of a pump's pipe, and who is said to run."""

    def __init__(self) -> None:
        self.loop = Stopwatch()
        self.log = Log()
        self.running: str | None = ""
        self.asked = 0
        self.reading, self.writing = os.pipe()
        self.pump = OutputReader(
            self.loop, self.log, 1, self._label, [self.reading], lambda line: ("info", line.decode())
        )  # type: ignore[arg-type]

    def _label(self) -> str | None:
        self.asked += 1
        return self.running

    def value(self, text: str) -> None:
        os.write(self.writing, text.encode())

    def until(self, condition: Callable[[], Any]) -> None:
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end, self.log.lines
            self.loop.time += OUTPUT_BATCH_DELAY_S
            self.loop.run_once(0.01)


@pytest.fixture
def engine() -> Iterator[EngineOutput]:
    engine = EngineOutput()
    yield engine
    for fd in (engine.reading, engine.writing):
        os.close(fd)
    engine.loop.close()


def test_a_line_is_of_the_only_request(engine: EngineOutput) -> None:
    engine.running = "a"
    engine.value("half a ")
    engine.loop.run_once(0.05)
    assert engine.log.lines == []
    engine.value("line\nand another\n")
    engine.until(lambda: len(engine.log.lines) == 2)
    assert engine.log.lines == [("half a line", "a"), ("and another", "a")]


def test_lines_of_concurrent_requests_are_attributed_to_none(engine: EngineOutput) -> None:
    engine.running = None
    engine.value("1\n")
    engine.until(lambda: engine.log.lines)
    for number in range(2, 7):
        engine.value(f"{number}\n")
        engine.loop.run_once(0.0)
    assert engine.log.lines == [("1", "")], "they wait for each other"
    engine.until(lambda: len(engine.log.lines) == 6)
    assert [label for _, label in engine.log.lines] == [""] * 6
    engine.value("of several\n")
    engine.running = "a"
    engine.until(lambda: len(engine.log.lines) == 7)
    assert engine.log.lines[-1] == ("of several", ""), "it was written before there was only one"
    engine.value("of one\n")
    engine.until(lambda: len(engine.log.lines) == 8)
    assert engine.log.lines[-1] == ("of one", "a")


def test_what_a_dead_engine_wrote_is_read_at_once(engine: EngineOutput) -> None:
    engine.running = None
    engine.value("1\n")
    engine.until(lambda: engine.log.lines)
    engine.value("its last words\nunfinished")
    engine.pump.drain()
    assert [text for text, _ in engine.log.lines] == ["1", "its last words", "unfinished"]
    asked = engine.asked
    engine.loop.time += OUTPUT_BATCH_DELAY_S
    engine.loop.run_once(0.0)
    assert engine.asked == asked, "nobody reads it any more"
    assert list(engine.pump.last_lines) == ["1", "its last words", "unfinished"]
