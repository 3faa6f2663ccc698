"""An engine's output: which request a line belongs to, and how often it wakes this process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from protocol.runtime.loop import Loop
from workers.engine.output_reader import OUTPUT_BATCH_DELAY_S, OutputReader

DEADLINE = 5.0


class OutputLog:
    """Keeps lines, and exceptions."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.errors: list[str] = []

    def bind(self, **_: object) -> OutputLog:
        return self

    def info(self, text: str, request_id: str = "") -> None:
        self.lines.append((text, request_id))

    def error(self, _event: str, *, exc_info: Exception | None = None) -> None:
        if exc_info is None:
            raise ValueError("log")
        self.errors.append(str(exc_info))


class EngineOutput:
    """The writing end of a pipe, its reader, and the request that counts as running."""

    def __init__(self) -> None:
        self.time = 0.0
        self.loop = Loop(lambda: self.time)
        self.log = OutputLog()
        self.running = ""
        self.label_calls = 0
        self.progress: list[str] = []
        self.reading, self.writing = os.pipe()
        self.reader = OutputReader(
            self.loop,
            self.log,
            1,
            self._label,
            [self.reading],
            self._parse,
            self._is_progress,
        )  # type: ignore[arg-type]

    def _parse(self, line: bytes) -> tuple[str, str]:
        if line == b"unreadable":
            raise ValueError("parse")
        return "error" if line == b"not logged" else "info", line.decode()

    def _is_progress(self, line: bytes) -> bool:
        if line == b"|0":
            raise ValueError("progress")
        if not line.startswith(b"|"):
            return False
        self.progress.append(line.decode())
        return True

    def _label(self) -> str:
        self.label_calls += 1
        return self.running

    def write(self, text: str) -> None:
        os.write(self.writing, text.encode())

    def until(self, condition: Callable[[], Any]) -> None:
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end, self.log.lines
            self.time += OUTPUT_BATCH_DELAY_S
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
    engine.write("half a ")
    engine.loop.run_once(0.05)
    assert engine.log.lines == []
    engine.write("line\nand another\n")
    engine.until(lambda: len(engine.log.lines) == 2)
    assert engine.log.lines == [("half a line", "a"), ("and another", "a")]


def test_pieces_of_a_line_wake_the_process_once(engine: EngineOutput) -> None:
    engine.running = "a"
    engine.write("0.01.")
    engine.loop.run_once(1.0)
    for piece in ("201.771 ", "W ", "slot 3\n"):
        engine.write(piece)
        engine.loop.run_once(0.0)
    assert engine.label_calls == 1, "one read, for all of them"
    assert engine.log.lines == []
    engine.reader.read_now()
    assert engine.log.lines == [("0.01.201.771 W slot 3", "a")], "another request is about to begin"


def test_output_is_watched_again_after_a_silence(engine: EngineOutput) -> None:
    for text in ("first", "second"):
        engine.write(f"{text}\n")
        engine.loop.run_once(1.0)
        assert engine.log.lines[-1] == (text, "")
        for _ in range(2):  # one empty batch, then the watch
            engine.time += OUTPUT_BATCH_DELAY_S
            engine.loop.run_once(0.0)


def test_lines_wait_for_each_other(engine: EngineOutput) -> None:
    engine.write("1\n")
    engine.until(lambda: engine.log.lines)
    for number in range(2, 7):
        engine.write(f"{number}\n")
        engine.loop.run_once(0.0)
    assert engine.log.lines == [("1", "")]
    engine.write("of none\n")
    engine.reader.read_now()
    engine.running = "a"
    assert [text for text, _ in engine.log.lines] == ["1", "2", "3", "4", "5", "6", "of none"]
    engine.write("of one\n")
    engine.until(lambda: len(engine.log.lines) == 8)
    assert [label for _, label in engine.log.lines] == [""] * 7 + ["a"]


def test_a_watched_pipe_is_read_too_before_the_requests_change(engine: EngineOutput) -> None:
    engine.running = "a"
    engine.write("of a\n")
    engine.reader.read_now()
    engine.running = "b"
    assert engine.log.lines == [("of a", "a")]
    engine.write("of b\n")
    engine.until(lambda: len(engine.log.lines) == 2)
    assert engine.log.lines[-1] == ("of b", "b"), "it is still watched"


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        (("half of a, ", "rest\nof b\n"), [("half of a, rest", "a"), ("of b", "b")]),
        (("\r|1 of a", "\r|2 of b\nof b\n"), [("of b", "b")]),
        (("10% of a", "\r10% of b\n"), [("10% of b", "b")]),
        (("of a\r", "\nof b\r\n"), [("of a", "a"), ("of b", "b")]),
    ],
)
def test_a_line_belongs_to_the_request_that_ran_when_it_began(
    engine: EngineOutput, pieces: tuple[str, str], lines: list[tuple[str, str]]
) -> None:
    for engine.running, piece in zip("ab", pieces, strict=True):
        engine.write(piece)
        engine.reader.read_now()
    assert engine.log.lines == lines


def test_the_unfinished_last_line_belongs_to_the_request_that_ran_when_it_began(engine: EngineOutput) -> None:
    engine.running = "a"
    engine.write("unfinished")
    engine.reader.read_now()
    engine.running = ""
    engine.reader.drain()
    assert engine.log.lines == [("unfinished", "a")]


@pytest.mark.parametrize(("line", "error"), [("unreadable", "parse"), ("|0", "progress"), ("not logged", "log")])
def test_an_exception_costs_one_line(engine: EngineOutput, line: str, error: str) -> None:
    engine.write("before\n")
    engine.loop.run_once(1.0)
    engine.write(f"{line}\nafter\nhalf ")
    engine.until(lambda: len(engine.log.lines) == 2)
    assert engine.log.errors == [error]
    assert engine.loop.errors == 1
    engine.write("line\n")
    engine.until(lambda: len(engine.log.lines) == 3)
    assert [text for text, _ in engine.log.lines] == ["before", "after", "half line"]


def test_what_a_dead_engine_wrote_is_read_at_once(engine: EngineOutput) -> None:
    engine.write("1\n")
    engine.until(lambda: engine.log.lines)
    engine.write("its last words\nunfinished")
    engine.reader.drain()
    assert [text for text, _ in engine.log.lines] == ["1", "its last words", "unfinished"]
    calls = engine.label_calls
    engine.time += OUTPUT_BATCH_DELAY_S
    engine.loop.run_once(0.0)
    assert engine.label_calls == calls, "it is read no more"
    assert list(engine.reader.last_lines) == ["1", "its last words", "unfinished"]


def test_bars_of_progress_are_read_as_they_come_and_not_logged(engine: EngineOutput) -> None:
    engine.write("begin\n\r| 1/3")
    engine.until(lambda: engine.progress)
    assert engine.progress == ["| 1/3"]
    engine.write("\r| 2/3")
    engine.until(lambda: "| 2/3" in engine.progress)
    engine.write("\r| 3/3\nend\r\n")
    engine.until(lambda: len(engine.log.lines) == 2)
    assert engine.progress[-1] == "| 3/3"
    assert [text for text, _ in engine.log.lines] == ["begin", "end"]


def test_of_what_a_terminal_would_overwrite_the_last_is_logged(engine: EngineOutput) -> None:
    engine.write("10%\r20%\r100%\nnext\n")
    engine.until(lambda: len(engine.log.lines) == 2)
    assert [text for text, _ in engine.log.lines] == ["100%", "next"]


def test_colours_are_not_logged(engine: EngineOutput) -> None:
    engine.write("\x1b[2m11:19\x1b[0m \x1b[1;31mno memory\x1b[m\x1b[K\n\x1b[0m\nend\n")
    engine.until(lambda: len(engine.log.lines) == 2)
    assert [text for text, _ in engine.log.lines] == ["11:19 no memory", "end"]
    assert list(engine.reader.last_lines) == ["11:19 no memory", "end"]
